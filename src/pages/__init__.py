"""Pages for a browser: what the drift page, the run pages and the site share.

- `render`: templates filled in, with every text made harmless and a content security policy by digest
- `wording`: numbers, times and long texts as a reader sees them
"""
