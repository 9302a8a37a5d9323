"""Errors, and what follows from what happens."""
