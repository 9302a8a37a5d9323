"""A hook that keeps one document of the corpus from being read."""


def before_call(data):
    """Deny op-e2.md, which is being rewritten."""
    if data["call"]["arguments"].get("path") == "corpus/op-e2.md":
        return {"deny": "op-e2.md is being rewritten"}
    return None
