"""In: data that is no reply, whatever it is. Pure, no SDK is needed."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import InvalidModelOutput
from tachograph.runtime.models.providers.failures import Cut, Reported
from tests.providers.test_mapping_in import MODULES, gathered

NO_REPLIES: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": "x"},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 7}}]},
        {"choices": [{"message": {"content": [{"type": "text", "text": 7}]}}]},
        {"choices": [{"message": {"tool_calls": {}}}]},
        {"choices": [{"message": {"tool_calls": [{}]}}]},
        {"choices": [{"message": {"tool_calls": [{"function": {"name": None}}]}}]},
        {"choices": [{"message": {"tool_calls": [{"function": {"name": "x", "arguments": 7}}]}}]},
    ],
    "anthropic": [
        {},
        {"content": None},
        {"content": "text"},
        {"content": ["text"]},
        {"content": [{"type": "text", "text": 7}]},
        {"content": [{"type": "tool_use", "name": "x"}]},
        {"content": [{"type": "tool_use", "name": 7, "input": {}}]},
        {"content": [{"type": "thinking", "signature": float("nan")}, {"type": "tool_use", "name": "x", "input": {}}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "reply"), [(provider, reply) for provider, all_ in NO_REPLIES.items() for reply in all_]
)
def test_what_is_no_reply_is_invalid(provider: str, reply: dict[str, Any]) -> None:
    with pytest.raises(InvalidModelOutput):
        MODULES[provider].reply_of(reply)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                "choices message delta content tool_calls function name arguments type index text input usage "
                "content_block error finish_reason stop_reason thinking".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KINDS = ("message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["choices", "message", "delta", "error", "usage"]), ANY_JSON),
        max_size=4,
    )
)
def test_no_data_breaks_the_mapping(values: list[dict[str, Any]]) -> None:
    for provider in MODULES:
        for value in values:
            assert _is_total(lambda p=provider, v=value: MODULES[p].reply_of(v))
    typed = [value | {"type": kind} for value, kind in zip(values, itertools.cycle(KINDS), strict=False)]
    lines = [b"data: " + json.dumps(value).encode() + b"\n\n" for value in [*values, *typed]]
    for provider in MODULES:
        assert _is_total(lambda p=provider: gathered(p, lines))
        assert _is_total(
            lambda p=provider: gathered(
                p, [*lines, b"data: [DONE]\n\n", b'data: {"type":"message_stop"}\n\n']
            )
        )


def _is_total(mapping: Any) -> bool:
    """Return whether a mapping gives a reply, or refuses the data as it should."""
    try:
        return mapping() is not None
    except (InvalidModelOutput, Cut, Reported):
        return True
