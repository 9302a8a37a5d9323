"""The log of a run: its lines, their file, and what is read from them."""
