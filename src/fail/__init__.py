"""What can go wrong.

- `errors`: the exception tree
- `catalog`: failure modes and endings; the one place where an outcome is classified
"""
