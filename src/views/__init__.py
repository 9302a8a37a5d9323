"""A run to look at: in a terminal, on a page, as a site."""
