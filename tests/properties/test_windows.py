"""What a model is shown of a conversation: whatever is left out or summed up, services take the rest."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.log.events import ModelReplied
from tachograph.runtime.log.values import Call, Usage
from tachograph.runtime.loop.window import Window
from tachograph.runtime.models.failure_messages import ask_for_summary, heard, summed_up
from tachograph.runtime.models.providers import anthropic, openai

words = st.sampled_from(["a", "b" * 150, "c" * 700])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("said"), words),
        st.tuples(st.just("answered"), words),
        st.tuples(st.just("called"), st.lists(words, min_size=1, max_size=4)),
        st.tuples(st.just("compact"), st.integers(1, 9)),
        st.tuples(st.just("label"), st.integers(1, 9)),
        st.tuples(st.sampled_from(["turn", "undo"]), st.none()),
    ),
    min_size=60,
    max_size=60,
)


def takes_openai(messages: list[dict[str, Any]]) -> bool:
    """Whether each call is followed by its results, and each result stands behind its call."""
    open_ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            return False
        open_ids = [call["id"] for call in message.get("tool_calls") or ()]
    return not open_ids and messages[0]["role"] == "user"


def takes_anthropic(turns: list[dict[str, Any]]) -> bool:
    """Whether turns alternate, and all calls of a turn have their results in the next one."""
    roles = [turn["role"] for turn in turns]
    if roles != ["user" if n % 2 == 0 else "assistant" for n in range(len(roles))]:
        return False
    for turn, after in zip(turns, [*turns[1:], {"content": []}], strict=True):
        called = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        given = [block["tool_use_id"] for block in after["content"] if block["type"] == "tool_result"]
        if sorted(called) != sorted(given):
            return False
    return True


@settings(max_examples=150)
@given(steps)
def test_services_take_what_is_left(program: list[tuple[str, Any]]) -> None:
    window = Window()
    window.add(heard("user", "begin"))
    for number, (what, about) in enumerate(program):
        if what == "said":
            window.add(heard("user", about))
        elif what == "answered":
            window.add_reply(ModelReplied(at="", answer=about, usage=Usage()))
            window.add(heard("1.c0", "more"))
        elif what == "called":
            calls = [Call(f"tc_{number}_{n}", "echo", {"text": text}) for n, text in enumerate(about)]
            window.add_reply(ModelReplied(at="", calls=calls, usage=Usage()))
            for call in calls:
                window.add_result(call, call.arguments)
        elif what == "turn":
            window.begin_turn()
        elif what == "undo":
            before = len([*window.messages()])
            assert window.take_back() == before - len([*window.messages()])
        elif what == "label":
            before = window.size
            assert (window.leave_out_results(about) == 0) == (window.size == before)
        elif (older := window.older_half(about)) > 0:
            asked = [*window.first(older, ask_for_summary(""))]
            assert takes_openai(openai.messages_of(asked)) and takes_anthropic(anthropic.messages_of(asked))
            window.sum_up(older, summed_up("so far"))
        messages = [*window.messages()]
        assert sum(len(message["content"]) for message in messages) < window.size
        assert takes_openai(openai.messages_of(messages)) and takes_anthropic(anthropic.messages_of(messages))


@given(text=st.text(st.sampled_from('aé\u2028"\\'), min_size=60, max_size=300), most=st.integers(0, 200))
def test_what_is_cut_is_shorter_and_says_of_what(text: str, most: int) -> None:
    window = Window()
    window.most = most
    shown, size = window.shown(text), len(text.encode())
    assert (shown != text) == bool(window.cut) <= (0 < most < size)
    if shown != text:
        told = json.loads(shown)
        assert len(shown.encode()) < size == told["bytes"] and text.startswith(told["beginning"])
