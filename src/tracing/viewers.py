"""What viewers of traces read beside the attributes of `trace.json`. All of it follows from these, so none is recorded.

Each span gets a kind of OpenInference, each operation of GenAI the conversation that it belongs to. A denial is told on
its own span and on each one above it, so that one filter finds denied calls, and denied runs by their roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from .spans import Span

_TOLD_ABOVE: Final = {
    "tachograph.rule": "agent.policy.rule_id",
    "tachograph.place": "agent.policy.at",
    "tachograph.reason": "agent.policy.reason",
}


def for_viewers(spans: Sequence[Span]) -> list[Span]:
    """Return spans with what viewers read; those of `trace.json` stay as they are.

    Args:
        spans: All spans of a run. One that is above several denials tells of the last.
    """
    shown = {span.span_id: structs.replace(span, attributes=dict(span.attributes)) for span in spans}
    for span in shown.values():
        span.attributes.setdefault("openinference.span.kind", "CHAIN")
        if "gen_ai.operation.name" in span.attributes:
            span.attributes["gen_ai.conversation.id"] = span.attributes["agent.run_id"]
        # a person did not allow what the gate asked about, or the gate or a hook denied
        is_refused = span.attributes.get("agent.policy.approval", "allow") != "allow"
        if is_refused or span.attributes.get("agent.policy.decision") == "deny":
            facts = {key: span.attributes[recorded] for key, recorded in _TOLD_ABOVE.items()}
            above: Span | None = span
            while above is not None:
                above.attributes.update(facts)
                above.attributes["tachograph.denied"] = True
                above = shown.get(above.parent_id)
    return list(shown.values())
