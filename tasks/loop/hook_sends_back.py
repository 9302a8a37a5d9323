"""A hook that wants each answer to name its document."""


def on_stop(data):
    """Send the agent back until its answer names a document."""
    if ".md" in data["answer"]:
        return None
    return {"send_back": "Name the document that this stands in."}
