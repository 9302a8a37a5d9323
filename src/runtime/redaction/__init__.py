"""Secrets become placeholders where they enter a run, so that loop, gate, tools and record see the same."""
