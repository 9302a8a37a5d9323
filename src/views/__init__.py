"""Runs to look at: terminal, HTML pages, static site.

- `model`: a recorded run as plain data for a page
- `journaled`: a run under way, read from its journal
- `tree`: a run as the lines of a tree
- `terminal`: the tree drawn by rich
- `charts`: the numbers behind the drawings of time, spans and budgets
- `steps`: what the templates say about a step
- `requests`: what the model saw at a step, and where it stands on the page
- `page`: a run as one self-contained page
- `compare_page`: two runs side by side
- `index_page`: the index of a site
- `site`: all runs as a static site
"""
