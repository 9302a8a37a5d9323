"""Hooks of the task `loop/hooks`: drafts are not read, workshop pages are kept back, an answer names its page."""


def before_call(data):
    """Read a draft's published page in its place."""
    path = data["call"]["arguments"].get("path", "")
    if path.startswith("corpus/draft-"):
        return {"arguments": {**data["call"]["arguments"], "path": path.replace("draft-", "op-")}}
    return None


def after_call(data):
    """Keep back the text of a page that is not for drivers."""
    if "op-d" in data["result"].get("path", ""):
        return {"deny": "the page is for workshops"}
    return None


def on_stop(data):
    """Send an answer back that names no page."""
    return None if "op-" in data["answer"] else {"send_back": "Name the page that you rely on."}
