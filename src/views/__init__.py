"""Runs to look at: terminal, HTML pages, static site.

- `model`: a recorded run as plain data for a page
- `journaled`: a run under way, read from its journal
- `tree`: a run as the lines of a tree
- `terminal`: the tree drawn by rich
- `markup`: HTML building with escaping in one place
- `charts`: SVG drawings: time, spans, budgets
- `steps`: the steps of a run as HTML
- `page`: a run as one self-contained page
- `compare_page`: two runs side by side
- `index_page`: the index of a site
- `site`: all runs as a static site
"""
