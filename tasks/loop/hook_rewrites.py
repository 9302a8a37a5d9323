"""A hook that sends a reader to the document that took the place of another."""


def before_call(data):
    """Read op-a1.md where op-e2.md is asked for."""
    if data["call"]["arguments"].get("path") == "corpus/op-e2.md":
        return {"arguments": {"path": "corpus/op-a1.md"}}
    return None
