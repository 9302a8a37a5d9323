"""The worlds that perform effects."""
