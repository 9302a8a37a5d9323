"""A hook: it keeps a note that is being rewritten from being quoted. `rewritten.yaml` names this file.

Hooks may tighten what the policy allows, and never widen it. Beside `before_call` there are `before_model`,
`after_call` and `on_stop`. A check of a scripted run calls them again, so that they answer by `data` alone.
"""

from typing import Any


def before_call(data: dict[str, Any]) -> dict[str, Any] | None:
    """Deny depots.md; None says nothing, and the call goes on."""
    if data["call"]["arguments"].get("path") == "notes/depots.md":
        return {"deny": "depots.md is being rewritten"}
    return None
