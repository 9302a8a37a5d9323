"""What goes to a service, and what comes back, by a service of our own that gives canned answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from tachograph.runtime.models.types import read_reply
from tests.providers.service import LANGUAGES, SECRET, A, O, answer, asked, chunked, model, silence, whole

DELTAS = [("thinking_delta", "h"), ("thinking_delta", "m"), ("signature_delta", "c2ln")]
THINK = A.block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    *({"type": kind, kind.removesuffix("_delta"): text} for kind, text in DELTAS),
)
COUNTED = {
    "prompt_tokens": 9,
    "completion_tokens": 8,
    "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 99},
    "completion_tokens_details": {"reasoning_tokens": 7},
}
WHO = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def reply(language: Any, service: Any, request: Any = None, **more: Any) -> Any:
    return asyncio.run(model(language, service, **more)(request or asked("?")))


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_is_told_as_it_arrives(serve: Any, language: Any) -> None:
    told: list[str] = []
    service = serve(answer(whole(language, language.said("Hel", "lo", "\u2028 \ud83d"))))
    out = asyncio.run(model(language, service).ask(asked("?"), told.append))
    assert told == ["Hel", "lo", "\u2028 ?"]
    assert (out.finish_reason, out.text, out.final_answer[:5], out.raw) == ("stop", None, "Hello", None)
    assert out.usage == {"input_tokens": 5, "output_tokens": 7}
    assert out.model in ("claude-1", "gpt-1")


@pytest.mark.parametrize("language", LANGUAGES)
def test_calls_in_pieces_side_by_side(serve: Any, language: Any) -> None:
    parts = [language.said("I look"), language.call(1, "look", '{"a"', ": 1}"), language.call(2, "look")]
    out = reply(language, serve(answer(whole(language, *parts, stop="tool_calls"))))
    assert (out.text, out.final_answer, out.finish_reason) == ("I look", None, "tool_calls")
    assert [call.name for call in out.tool_calls] == ["look", "look"]
    assert [str(call.arguments) for call in out.tool_calls] == ['{"a": 1}', "{}"]


def test_calls_that_all_have_the_number_0(serve: Any) -> None:
    parts = [O.call(0, "look", "{}"), O.call(0, "see", '{"b": 2}', id="call_x"), O.call(1, "look", "{}")]
    service = serve(answer(whole(O, *parts, stop="stop")))
    out = reply(O, service)
    assert service.requests[0][2]["tools"][0]["function"]["parameters"]["properties"] == {}
    assert [call.name + str(call.arguments) for call in out.tool_calls] == ["look{}", 'see{"b": 2}', "look{}"]


@pytest.mark.parametrize(
    ("language", "parts", "stop", "finish", "said"),
    [
        (A, [A.said("half")], "length", "length", "half"),
        (O, [O.said("half")], "length", "length", "half"),
        (A, [], "length", "length", ""),
        (A, [THINK, A.said("so", index=1)], "stop", "stop", "so"),
        (A, [A.said("no")], "refusal", "refusal", "no"),
        (A, [A.call(0, "look")], "refusal", "refusal", ""),
        (O, [O.chunk({"refusal": "no"})], "stop", "refusal", "no"),
        (O, [], "refusal", "refusal", ""),
        (A, [A.said("new")], "brand_new", "other", "new"),
        (O, [O.said("new")], "function_call", "other", "new"),
        (O, [O.said("none")], "tool_calls", "other", "none"),
        (A, [], "stop", "stop", None),
        (O, [], "stop", "stop", None),
        (O, [O.chunk({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "p"}]})]
         , "stop", "stop", "p"),
        (A, [A.call(0, "look", "{")], "length", "length", None),
        (O, [O.call(0, "look", "{")], "length", "length", None),
    ],
)  # fmt: skip
def test_why_it_stopped(serve: Any, language: Any, parts: Any, stop: str, finish: str, said: Any) -> None:
    out = reply(language, serve(answer(whole(language, *parts, stop=stop))))
    assert (out.finish_reason, out.final_answer, out.raw) == (finish, said, None)
    assert bool(read_reply(out, "1.m1", 1, 10).problem) == (said is None)


@pytest.mark.parametrize(
    ("language", "first", "last", "read"),
    [
        (A, A.start(), A.stopped("stop"), (5, 7, False)),
        (A, A.event("message_start", message={"usage": {"input_tokens": 2, "cache_read_input_tokens": 3}}),
         A.event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}), (5, 9, False, 3)),
        (A, A.event("message_start", message={"usage": {"input_tokens": 2, "cache_creation_input_tokens": 4}}),
         A.event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}), (6, 9, False, 0, 4)),
        (A, A.event("message_start", message={}), A.event("message_delta", delta={"stop_reason": "end_turn"}),
         (10, 2, True)),
        (O, O.start(), O.stopped("stop", -1), (5, 2, True)),
        (O, O.start(), O.chunk({}, "stop", usage=COUNTED), (9, 8, False, 6, 3, 7)),
        (O, O.start(), O.chunk({}, "stop", usage=COUNTED | {"prompt_tokens_details": 3}), (9, 8, False, 0, 0, 7)),
        (O, O.start(), O.chunk({}, "stop", usage={"prompt_tokens": "9", "completion_tokens": 1.5}), (10, 2, True)),
    ],
)  # fmt: skip
def test_usage(serve: Any, language: Any, first: bytes, last: bytes, read: Any) -> None:
    out = reply(language, serve(answer(first + language.said("hi") + last + language.end)))
    assert structs.astuple(read_reply(out, "1.m1", 1, 10).usage) == (*read, 0, 0, 0)[:6]


def test_a_history_for_anthropic(serve: Any) -> None:
    calls = [{"id": f"tc_1_{i}", "name": ["look", "no such!"][i], "arguments": "{}"} for i in (0, 1)]
    results = [{"role": "tool", "tool_call_id": f"tc_1_{i}", "name": "look", "content": "{}"} for i in (0, 1)]
    said = {"role": "assistant", "content": "", "tool_calls": calls}
    odd = {"role": "assistant", "content": "", "tool_calls": [{**calls[0], "arguments": "{,"}]}
    service = serve(answer(whole(A, A.said("ok"))))
    reply(A, service, asked("?", "and?", said, results[0], "quick!", results[1], odd, instructions="Be good"))
    path, headers, body = service.requests[0]
    assert (path, headers["accept-encoding"], body["system"]) == (A.path, "identity", "Be good")
    assert (body["model"], body["max_tokens"], body["stream"]) == ("claude", 1000, True)
    assert SECRET in str(headers) and [tool["name"] for tool in body["tools"]] == ["look"]
    parts = [(turn["role"][0], part) for turn in body["messages"] for part in turn["content"]]
    names = [who + (part.get("text") or part.get("id") or part["tool_use_id"]) for who, part in parts]
    assert names == "u? uand? atc_1_0 atc_1_1 utc_1_0 utc_1_1 uquick! atc_1_0".split()
    assert len(body["messages"]) == 4
    assert body["messages"][1]["content"][1]["name"] == "no_such_"
    assert body["messages"][3]["content"][0]["input"] == {"unparsed": "{,"}


def test_a_history_for_openai(serve: Any) -> None:
    call = {"id": "tc_1_0", "name": "look", "arguments": '{"a":1}'}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "tc_1_0", "name": "look", "content": "{}"}
    given = ["?", "and?", said, result, {**said, "tool_calls": []}, "go on"]
    service = serve(answer(whole(O, O.said("ok"))))
    reply(O, service, asked(*given, instructions="Be good", tools=()), options={"tool_choice": "auto"})
    path, _, body = service.requests[0]
    assert (path, body["max_tokens"], body["stream_options"]) == (O.path, 1000, {"include_usage": True})
    assert "tools" not in body and "tool_choice" not in body
    system, user, assistant, tool, last = body["messages"]
    assert [system["role"], user["content"], last["content"]] == ["system", "?\n\nand?", "go on"]
    assert assistant["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"a":1}'}
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"] == "tc_1_0"


SEARCH = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"n": 1}]}
QUERY = {"type": "input_json_delta", "partial_json": '{"q": "x"}'}
CITED = [{"type": "text_delta", "text": "s"}, {"type": "citations_delta", "citation": {"n": 1}}]
TEXT = {"type": "text", "text": ""}
PAUSED = [THINK, A.block(1, SEARCH, QUERY), A.block(2, FOUND), A.block(3, TEXT, *CITED), A.said(index=4)]
NOTE = {"extra_content": {"google": {"thought_signature": "c2ln"}}}


def sent_back(language: Any, serve: Any, parts: Any, stop: str, change: Any = None) -> tuple[Any, Any]:
    """Ask, put the reply into the history as the loop does, and ask again; return reply and turn."""
    service = serve(answer(whole(language, *parts, stop=stop), whole(language, language.said("ok"))))
    out = reply(language, service)
    read = read_reply(out, "1.m1", 1, 10)
    assert not read.problem or out.finish_reason == "pause"
    turn: dict[str, Any] = {"role": "assistant", "content": read.text or read.answer, "raw": read.raw}
    if read.calls:
        turn["tool_calls"] = [{"id": call.id, "name": call.name, "arguments": "{}"} for call in read.calls]
    if change is not None:
        change(turn["raw"]["kept"])
    reply(language, service, asked("?", turn))
    return out, service.requests[1][2]["messages"][1]


def test_signed_thinking_goes_back_as_it_came(serve: Any) -> None:
    out, turn = sent_back(A, serve, [THINK, A.said("so", index=1), A.call(2, "look", "{}")], "tool_calls")
    call = {"type": "tool_use", "id": "tc_1_0", "name": "look", "input": {}}
    assert out.text == "so" and turn["content"] == [WHO, {"type": "text", "text": "so"}, call]


def test_thinking_in_which_a_secret_was_replaced_stays_away(serve: Any) -> None:
    def change(kept: Any) -> None:
        kept[0]["thinking"] = "<secret>"

    _, turn = sent_back(A, serve, [THINK, A.call(1, "look", "{}")], "tool_calls", change)
    assert [block["type"] for block in turn["content"]] == ["tool_use"]


def test_a_paused_turn_goes_back_as_it_is(serve: Any) -> None:
    out, turn = sent_back(A, serve, PAUSED, "pause_turn")
    assert (out.finish_reason, out.text, out.final_answer) == ("pause", "s", None)
    text = {"type": "text", "text": "s", "citations": [{"n": 1}]}
    assert turn["content"] == [WHO, {**SEARCH, "input": {"q": "x"}}, FOUND, text]


def test_thoughts_and_a_signature_for_each_call_go_back(serve: Any) -> None:
    parts = [O.chunk({"reasoning_content": "h"}), O.chunk({"reasoning_content": "m"})]
    parts += [O.call(0, "look", "{}", **NOTE), O.call(1, "look", "{}")]
    _, turn = sent_back(O, serve, parts, "tool_calls")
    assert turn["reasoning_content"] == "hm"
    assert [call.get("extra_content") for call in turn["tool_calls"]] == [NOTE["extra_content"], None]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_whole_reply_needs_nothing_behind_it(serve: Any, language: Any) -> None:
    """A connection that stays open behind the end of a reply costs the reply nothing; one that ends is used again."""
    body = whole(language, language.said("ok"))
    service = serve(silence(answer(body)), chunked(body, is_whole=True))
    asking = model(language, service, timeout_s=86_400)

    for _ in range(3):
        assert (await asking(asked("?"))).final_answer == "ok"
    assert len(service.peers) == 2
