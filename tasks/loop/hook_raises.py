"""A hook that fails: it looks for a key that no call has."""


def before_call(data):
    """Raise KeyError."""
    return data["call"]["arguments"]["no such key"]
