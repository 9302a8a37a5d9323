"""The limits that a recorded run needs: each just enough for what the run used and what its model was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...runtime.core.lines import Line
from ..queries.recorded_queries import GateQuestion, RecordedQuestion

COUNTED: Final = ("loop_budget", "cycle_detection")  # rules that count


@dataclass
class Usage:
    """What a run used: the lowest value that each limit may have.

    Attributes:
        refused: The questions that a limit refused.
    """

    iterations: int = 1
    tokens: int = 1
    tool_calls: int = 0
    result_bytes: int = 0
    attempts: int = 0
    repeats: int = 1
    refused: list[RecordedQuestion] = field(default_factory=list)

    @classmethod
    def of(cls, questions: Iterable[tuple[RecordedQuestion, int]]) -> Usage:
        """Return the usage of a run.

        Args:
            questions: Each question, with the number of calls that would have been made before it in addition to
                those that were.
        """
        usage = cls()
        for item, extra_calls in questions:
            usage._add(item.question, extra_calls)
            if item.refused and item.entry is not None and item.entry["rule_id"] in COUNTED:
                usage.refused.append(item)
        return usage

    def _add(self, question: GateQuestion, extra_calls: int) -> None:
        used = question.counters
        if used is None:
            return
        if question.size is not None:
            self.result_bytes = max(self.result_bytes, used.result_bytes + question.size)
        elif question.call is not None:
            self.tool_calls = max(self.tool_calls, used.tool_calls + extra_calls + 1)
            self.attempts = max(self.attempts, used.attempts + extra_calls + 1)
            self.result_bytes = max(self.result_bytes, used.result_bytes + 1)
            self.repeats = max(self.repeats, max(used.repeats.values(), default=0) + 1)
        else:
            self.iterations = max(self.iterations, used.iterations + 1)
            self.tokens = max(self.tokens, used.tokens + 1)


def required_budget(
    used: Usage,
    steps: Sequence[Line],
    limits: Mapping[str, int],
    wrap_up: bool,
    line_comments: dict[str, str],
) -> dict[str, Any]:
    """Return the lowest `loop_budget` under which a run goes as recorded.

    Args:
        used: What the run used.
        steps: Its step lines.
        limits: Its recorded limits.
        wrap_up: Whether its last step within the limits is offered without tools.
        line_comments: Gets a comment for each limit that differs from the recorded one.
    """
    budget: dict[str, Any] = {
        "max_iterations": _iterations(used.iterations, steps, limits["max_iterations"], wrap_up),
        "max_tokens": max(used.tokens, min(_tokens_for_replies(steps), limits["max_tokens"])),
        "max_tool_calls": used.tool_calls,
        "max_result_bytes": used.result_bytes,
        # a call that was executed may have been tried again
        **({"max_attempts": max(used.attempts, _tries(steps))} if "max_attempts" in limits else {}),
    }
    for name, value in budget.items():
        if value != limits[name]:
            words = f"was {limits[name]}"
            if name == "max_iterations" and value > used.iterations:
                words = f"{used.iterations} taken; any lower, and the model is told so; {words}"
            line_comments.setdefault(f"/loop_budget/{name}", words)
    if wrap_up:
        budget["wrap_up"] = True
    return budget


def _tries(steps: Sequence[Line]) -> int:
    return sum(len(result["attempts"]) for step in steps for result in step["tool_results"])


def limit_pointer(item: RecordedQuestion) -> str:
    """Return the JSON Pointer of the limit that refused a question."""
    assert item.entry is not None
    if item.entry["rule_id"] == "cycle_detection":
        return "/cycle_detection/max_repeats"
    return f"/loop_budget/{item.entry['facts']['budget']}"


def _iterations(least: int, steps: Sequence[Line], most: int, wrap_up: bool) -> int:
    """Return the lowest limit under which the model is told of its last steps when it was told then."""
    notices = [line.get("notice") for line in steps if line["llm_input"] is not None]
    for limit in (least, least + 1, least + 2, most):
        if least <= limit <= most and _gives_notices(limit, notices, wrap_up):
            return limit
    return least


def _gives_notices(limit: int, recorded: Sequence[str | None], wrap_up: bool) -> bool:
    """Return whether the model is given the recorded notices under a limit."""
    for done, recorded_notice in enumerate(recorded):
        left = limit - done
        last = left == 1 and wrap_up
        notice = "last" if last else "two_left" if left == 2 < limit else None
        if recorded_notice != notice and not (recorded_notice == "go_on" and notice != "last"):
            return False
    return True


def _tokens_for_replies(steps: Sequence[Line]) -> int:
    """Return the smallest `max_tokens` under which every recorded reply fits."""
    before, most = 0, 1
    for line in steps:
        most = max(most, before + line["usage"]["output_tokens"])
        before += line["usage"]["input_tokens"] + line["usage"]["output_tokens"]
    return most
