"""The limits that a recorded run needs: each just enough for what the run used, and for what it was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..queries.recorded_queries import Asked, Question

Line = Mapping[str, Any]

COUNTED: Final = ("loop_budget", "cycle_detection")  # rules that count


@dataclass
class Used:
    """What a run asked room for: the least that each limit may be."""

    iterations: int = 1
    tokens: int = 1
    tool_calls: int = 0
    result_bytes: int = 0
    repeats: int = 1
    refused: list[Asked] = field(default_factory=list)

    @classmethod
    def by(cls, asked: Iterable[tuple[Asked, int]]) -> Used:
        """By questions, each with the calls that would have been made before it besides those that were."""
        found = cls()
        for item, extra in asked:
            found._add(item.question, extra)
            if item.refused and item.entry is not None and item.entry["rule_id"] in COUNTED:
                found.refused.append(item)
        return found

    def _add(self, question: Question, extra: int) -> None:
        used = question.counters
        if used is None:
            return
        if question.size is not None:
            self.result_bytes = max(self.result_bytes, used.result_bytes + question.size)
        elif question.call is not None:
            self.tool_calls = max(self.tool_calls, used.tool_calls + extra + 1)
            self.result_bytes = max(self.result_bytes, used.result_bytes + 1)
            self.repeats = max(self.repeats, max(used.repeats.values(), default=0) + 1)
        else:
            self.iterations = max(self.iterations, used.iterations + 1)
            self.tokens = max(self.tokens, used.tokens + 1)


def budget(
    used: Used, steps: Sequence[Line], limits: Mapping[str, int], wrap_up: bool, beside: dict[str, str]
) -> dict[str, Any]:
    """A `loop_budget` of what was used; `limits` are the recorded ones, which words in `beside` tell of."""
    found: dict[str, Any] = {
        "max_iterations": _iterations(used.iterations, steps, limits["max_iterations"], wrap_up),
        "max_tokens": max(used.tokens, min(_spoken(steps), limits["max_tokens"])),
        "max_tool_calls": used.tool_calls,
        "max_result_bytes": used.result_bytes,
    }
    for name, value in found.items():
        if value != limits[name]:
            words = f"was {limits[name]}"
            if name == "max_iterations" and value > used.iterations:
                words = f"{used.iterations} taken; any lower, and the model is told so; {words}"
            beside.setdefault(f"/loop_budget/{name}", words)
    if wrap_up:
        found["wrap_up"] = True
    return found


def line_of(item: Asked) -> str:
    """The line of the limit that a question was refused by."""
    assert item.entry is not None
    if item.entry["rule_id"] == "cycle_detection":
        return "/cycle_detection/max_repeats"
    return f"/loop_budget/{item.entry['facts']['budget']}"


def _iterations(least: int, steps: Sequence[Line], most: int, wrap_up: bool) -> int:
    """The least limit under which the model is told of its last steps just when it was then."""
    told = [line.get("notice") for line in steps if line["llm_input"] is not None]
    for limit in (least, least + 1, least + 2, most):
        if least <= limit <= most and _notices(limit, told, wrap_up):
            return limit
    return least


def _notices(limit: int, told: Sequence[str | None], wrap_up: bool) -> bool:
    """Whether a limit brings the notices that there were."""
    for done, then in enumerate(told):
        left = limit - done
        last = left == 1 and wrap_up
        now = "last" if last else "two_left" if left == 2 < limit else None
        if then != now and not (then == "go_on" and now != "last"):
            return False
    return True


def _spoken(steps: Sequence[Line]) -> int:
    """The tokens that leave room for what the model said, the last time too."""
    before, most = 0, 1
    for line in steps:
        most = max(most, before + line["usage"]["output_tokens"])
        before += line["usage"]["input_tokens"] + line["usage"]["output_tokens"]
    return most
