"""The spans of an ordinary step as text, from a template.

Most steps are alike: the model is asked once, one call is allowed and executed once. Their spans differ in a few
values only. The template is the output of the ordinary projection and encoder for one such step whose values are
marks; a later step fills in its own values. So the template holds nothing that `spans.py` does not say.
"""

from __future__ import annotations

import copy
import hashlib
from json.encoder import encode_basestring as _quote
from typing import Any, Final, NamedTuple

from ..runtime.core.lines import Line
from .otlp_json import span_text
from .spans import Projector, span_id_of

_INDEX: Final = 7_770_000_001
_INPUT, _OUTPUT = 7_770_000_002, 7_770_000_003
_STAMPS: Final = {"m.1": (7_771_000_001, 7_771_000_002), "d0": (7_771_000_003, 7_771_000_004)}
_ATTEMPT: Final = (7_771_000_005, 7_771_000_006)
_PATHS: Final = ("", "/m", "/d0", "/t0", "/t0/1")  # of the five spans, below the step's own path


class _Template(NamedTuple):
    """`text` has a %s for each value, `order` says which one; `names` are those of the spans."""

    text: str
    order: tuple[int, ...]
    names: tuple[str, ...]


class StepTemplates:
    """Renders the spans of the ordinary steps of one run."""

    def __init__(self, projector: Projector) -> None:
        self._projector = projector
        self._made: dict[tuple[bool, bool], _Template] = {}
        self._hash = hashlib.sha256(f"{projector.trace_id}/".encode())

    def render(self, line: Line) -> tuple[str, tuple[str, ...]] | None:
        """Return the text of a step's spans and their names, or None if the step is not an ordinary one."""
        results, decisions, reply = line["tool_results"], line["policy_decisions"], line["llm_output"]
        if len(results) != 1 or len(decisions) != 1 or reply is None or line["failure_mode"] is not None:
            return None
        (result,), (decision,), stamps = results, decisions, line["stamps"]
        attempts = result["attempts"]
        if (
            result["status"] != "ok"
            or len(attempts) != 1
            or len(line["llm_attempts"]) != 1
            or len(stamps) != 3
            or decision["phase"] != "proposal"
            or decision["position"] != "d0"
            or "approval" in decision
            or attempts[0]["outcome"] != "success"
        ):
            return None
        self._projector.begin(stamps["m.1"][0])
        finish, model = reply["finish_reason"], reply["model"]
        template = self._made.get((finish is None, model is None)) or self._make(line)
        usage, zero, ids = line["usage"], self._projector.zero, self._span_ids(line["step_index"])
        model_times, decision_times, attempt_times = stamps["m.1"], stamps["d0"], stamps["i0.1"]
        values = (
            *ids,
            line["step_index"],
            usage["input_tokens"],
            usage["output_tokens"],
            zero + model_times[0],
            zero + model_times[1],
            zero + decision_times[0],
            zero + decision_times[1],
            zero + attempt_times[0],
            zero + attempt_times[1],
            _quote(finish or ""),
            _quote(model or ""),
            _quote(decision["at"]),
            _quote(decision["decision"]),
            _quote(decision["reason"]),
            _quote(decision["rule_id"]),
            _quote(result["id"]),
            _quote(result["name"]),
        )
        return template.text % tuple([values[i] for i in template.order]), template.names

    def _span_ids(self, index: int) -> list[str]:
        base = self._hash.copy()
        base.update(b"s%d" % index)
        ids = []
        for path in _PATHS:
            one = base.copy()
            one.update(path.encode())
            ids.append(one.hexdigest()[:16])
        return ids

    def _make(self, line: Line) -> _Template:
        """Make the template for steps like `line` from the projection of a step whose values are marks."""
        marked: dict[str, Any] = copy.deepcopy(dict(line))
        (result,), (decision,), reply = (
            marked["tool_results"],
            marked["policy_decisions"],
            marked["llm_output"],
        )
        marked["step_index"] = _INDEX
        marked["usage"].update(input_tokens=_INPUT, output_tokens=_OUTPUT)
        marked["stamps"] = {**{key: list(pair) for key, pair in _STAMPS.items()}, "i0.1": list(_ATTEMPT)}
        texts = {
            key: f"<{key}>" for key in ("finish", "model", "at", "decision", "reason", "rule", "id", "name")
        }
        decision.update(
            at=texts["at"], decision=texts["decision"], reason=texts["reason"], rule_id=texts["rule"]
        )
        decision["id"] = result["id"] = marked["intended_tool_calls"][0]["id"] = texts["id"]
        result["name"] = marked["intended_tool_calls"][0]["name"] = texts["name"]
        shape = reply["finish_reason"] is None, reply["model"] is None
        if not shape[0]:
            reply["finish_reason"] = texts["finish"]
        if not shape[1]:
            reply["model"] = texts["model"]
        zero, trace = self._projector.zero, self._projector.trace_id
        times = [zero + stamp for pair in (*_STAMPS.values(), _ATTEMPT) for stamp in pair]
        marks = [
            *(span_id_of(trace, f"s{_INDEX}{path}") for path in _PATHS),
            *map(str, (_INDEX, _INPUT, _OUTPUT, *times)),
            *(_quote(text) for text in texts.values()),
        ]
        spans = self._projector.step(marked)
        text = ",\n".join(map(span_text, spans))
        for number, mark in enumerate(marks):  # JSON text has no NUL
            text = text.replace(mark, f"\0{number}\0")
        pieces = text.split("\0")
        order = tuple(map(int, pieces[1::2]))
        template = _Template(
            "%s".join(piece.replace("%", "%%") for piece in pieces[::2]), order, tuple(s.name for s in spans)
        )
        self._made[shape] = template
        return template
