"""A graph of agents; the first word of the task says which part of it works."""

from tachograph import loop_until, parallel, route, sequence

DESCRIPTION = "Works on a task by agents."
INPUT_SCHEMA = {
    "type": "object",
    "properties": {"task": {"type": "string"}},
    "required": ["task"],
    "additionalProperties": False,
}
OUTPUT_SCHEMA = {
    "type": "object",
    "properties": {"ending": {"type": "string"}, "answer": {"type": ["string", "null"]}},
    "required": ["ending", "answer"],
    "additionalProperties": False,
}
EFFECT = "write"
IDEMPOTENT = True
TRANSIENT = ()


def _is_fine(said: str) -> bool:
    return said.startswith("fine")


_reviewed = loop_until("anna", _is_fine, reviewer="reader", most=2)
_both = parallel("reader", sequence("anna", "reader"))
run = route(
    lambda task: task.split()[0],
    {
        "review": _reviewed,
        "both": sequence(_both, "anna"),
        "ask": route("reader", {"a": "anna", "b": "reader"}),
    },
).run
