"""How a live model is made, that it belongs to an event loop and a process, and a run with one."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Tool, check, record, resume
from tachograph.fail.errors import InputError
from tachograph.runtime.models.providers import model_of
from tests.project import POLICY, cut, merged
from tests.providers.service import LANGUAGES, SECRET, O, answer, asked, chunked, model, whole

HOME = {"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": ""}


@pytest.mark.parametrize(
    ("name", "more", "variables", "word"),
    [
        ("gpt", {}, {}, "PROVIDER:MODEL"),
        ("openai:a b", {}, {}, "PROVIDER:MODEL"),
        ("openai:gpt", {}, HOME, "OPENAI_API_KEY"),
        ("anthropic:claude", {}, HOME, "ANTHROPIC_API_KEY"),
        ("openai:gpt", {}, {"OPENAI_API_KEY": "line\nbreak"}, "OPENAI_API_KEY"),
        ("openai:gpt", {"base_url": "http://u:p@x/v1"}, {}, "https://HOST"),
        ("openai:gpt", {"base_url": "http://x/v1?k=1"}, {}, "https://HOST"),
        ("openai:gpt", {"base_url": "http://x:y"}, {}, "https://HOST"),
        ("openai:gpt", {}, {"OPENAI_BASE_URL": "x"}, "OPENAI_BASE_URL"),
        ("openai:gpt", {"options": {"temprature": 0}}, {}, "temperature"),
        ("openai:gpt", {"options": {"stream": False}}, {}, "stream"),
        ("anthropic:claude", {"options": {"zzz": 0}}, {}, "extra_body"),
        ("anthropic:claude", {"options": {"max_tokens": 0}}, {}, "max_tokens"),
        ("openai:gpt", {"options": {"seed": float("nan")}}, {}, "JSON"),
        ("openai:gpt", {"options": {"extra_body": {"messages": []}}}, {}, "extra_body"),
        ("openai:gpt", {"timeout_s": float("nan")}, {}, "timeout_s"),
    ],
)
def test_what_is_refused_before_a_model_is_asked(
    monkeypatch: pytest.MonkeyPatch, name: str, more: Any, variables: dict[str, str], word: str
) -> None:
    for language in LANGUAGES:
        pytest.importorskip(language.package, reason=f"the package {language.package} is not installed")
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(InputError) as caught:
        Agent(model_of(name, **more), [], Policy.from_dict(POLICY)).run("what?")
    assert word in str(caught.value) and caught.value.remedy
    assert "\n" not in str(caught.value) and SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["anthropic:claude", "openai:gpt"])
def test_an_sdk_that_is_not_there(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for package in ("anthropic", "openai"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match="pip install"):
        model_of(name)
    monkeypatch.undo()
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1.99.0")
    with pytest.raises(InputError, match="pip install"):
        model_of(name)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_record_gets(language: Any) -> None:
    made = model(language, "https://example.test", options={"extra_body": {"top_k": 1}})
    assert [made.name.provider, made.name.name, made.name.path] == [*language.name.split(":"), "live"]
    assert made.options == {"max_tokens": 8192, "extra_body": {"top_k": 1}}
    assert SECRET not in repr(made) and "example.test" in repr(made)
    with pytest.raises(TypeError):
        pickle.dumps(made)


def test_settings_of_a_request(serve: Any) -> None:
    service = serve(answer(whole(O, O.said("hi"))))
    options = {"max_tokens": 50, "seed": 1, "tool_choice": "required", "extra_body": {"top_k": 1}}
    asking = model(O, service.url.replace("127.0.0.1", "localhost"), options=options)
    for limit in (10, 100, 0):
        asyncio.run(asking(asked("?", limit=limit)))
    bodies = [body for _, _, body in service.requests]
    assert [body["max_tokens"] for body in bodies] == [10, 50, 1]
    assert [bodies[0].get(name) for name in ("seed", "tool_choice", "top_k")] == [1, "required", 1]
    assert model_of("openai:gpt")._service.limit_name == "max_completion_tokens"


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_loop_and_each_process_has_a_client(serve: Any, language: Any, monkeypatch: Any) -> None:
    made = model(language, serve(chunked(whole(language, language.said("hi")), is_whole=True)))
    clients = []

    async def ask_twice() -> None:
        await asyncio.gather(made(asked("?")), made(asked("?")))
        clients.append(await made._client())

    for _ in range(2):
        asyncio.run(ask_twice())
    assert clients[0] is not clients[1] and all(client.is_closed() for client in clients)

    async def fork() -> None:
        await made(asked("?"))
        parents = await made._client()
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            assert await made._client() is not parents and not parents.is_closed()
        assert await made._client() is parents

    asyncio.run(fork())

    class Ended:  # a loop that another thread forgets in this moment
        def is_closed(self) -> bool:
            made._clients.clear()
            return True

    made._clients[os.getpid(), Ended()] = None
    assert asyncio.run(made(asked("?"))).final_answer == "hi"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_run_with_a_call(serve: Any, language: Any, tmp_path: Path, monkeypatch: Any) -> None:
    call = whole(language, language.call(0, "look", '{"word": ', '"x"}'), stop="tool_calls")
    busy = answer(b"{}", "Content-Type: application/json", "Retry-After: 0", status=529)
    service = serve(answer(call), busy, answer(whole(language, language.said("found ", "y"))))
    word = {"type": "object", "additionalProperties": False, "properties": {"word": {"type": "string"}}}
    look = Tool("look", "Look", word, word, "read", lambda arguments, io: {"word": "y"})
    delta = {"tool_registry": {"allowed": ["look"]}, "loop_budget": {"max_tokens": 10**6}}
    rest = [look], Policy.from_dict(merged(POLICY, delta))
    result = record(Agent(model(language, service), *rest), "what?", out=tmp_path / "run")
    assert (result.ending, result.answer, result.steps) == ("final_answer", "found y", 2)
    assert [event.at for event in result.events if ".m" in event.at] == ["1.m1", "2.m1", "2.m1.w", "2.m2"]
    sent = str(service.requests[2][2]["messages"])
    assert sent.count("tc_1_0") == 2 and '{"word":"y"}' in sent
    for variable in HOME:  # whoever checks the record needs no key
        monkeypatch.delenv(variable)
    assert check(Agent(language.name, *rest), tmp_path / "run") == []
    cut(tmp_path / "run", 2)
    with pytest.raises(InputError, match="is not set"):  # and who goes on with an open one does
        resume(Agent(language.name, *rest), tmp_path / "run")
