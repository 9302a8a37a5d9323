"""Tools and models of other frameworks, governed."""
