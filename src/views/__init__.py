"""Runs for people: as a tree, as a page, as a site, and as they go on."""
