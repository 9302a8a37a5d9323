"""Whatever models, tools and people do, a run ends in a sound record, or in one clear complaint."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import Cancelled, InputError, InvalidModelOutput, TransientModelError
from tachograph.runtime.core.effects import Answer
from tachograph.runtime.models.types import LLMOutput, ToolCall
from tachograph.runtime.setup import run_line
from tachograph.runtime.workspace.mounts import Host
from tests.support import Ran, answer, perform, policy_data, tool

JUNK: list[Any] = [None, 3, b"x", float("nan"), {1: 2}, "text", [], {"said": {1}}, {"said": "\ud800"}]
PATHS = ["books/page.md", "books/link.md", "books/gone.md", "box/new", "nowhere/x", "../etc", "", "box"]
URLS = [
    "https://good.test/page.md",
    "https://good.test/away",
    "https://good.test/loop",
    "https://evil.test/",
    "x",
]

arguments = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.integers(0, 12),
            "url": st.sampled_from(URLS),
            "path": st.sampled_from(PATHS),
            "target": st.sampled_from(PATHS),
            "extra": st.none(),
        },
    ),
    st.text(max_size=20),
    st.sampled_from(['{"n":1,"n":1}', '{"n":NaN}', "[]", '{"n":1e400}', "\ud800", '{"n": 1.0}']),
    st.sampled_from(JUNK),
)
calls = st.builds(
    ToolCall,
    name=st.sampled_from(["probe", "probe", "echo", "write", "nope", "", "\x1b[31m"]),
    arguments=arguments,
)
usage = st.one_of(
    st.none(),
    st.fixed_dictionaries({"input_tokens": st.integers(-5, 900), "output_tokens": st.integers(0, 900)}),
    st.sampled_from(JUNK),
)
finish = st.sampled_from([None, "stop", "length", "tool_calls", "nonsense", 3])
replies = st.one_of(
    st.builds(LLMOutput, tool_calls=st.lists(calls, min_size=1, max_size=3), usage=usage),
    st.builds(
        LLMOutput, tool_calls=st.lists(calls, min_size=1, max_size=3), usage=usage, text=st.text(max_size=9)
    ),
    st.builds(
        LLMOutput,
        text=st.one_of(st.none(), st.text(max_size=9), st.sampled_from(JUNK)),
        tool_calls=st.one_of(st.lists(calls, max_size=2), st.sampled_from(JUNK)),
        final_answer=st.one_of(st.none(), st.text(max_size=9), st.sampled_from(JUNK)),
        usage=usage,
        finish_reason=finish,
        model=st.one_of(st.none(), st.text(max_size=5)),
        raw=st.one_of(st.none(), st.sampled_from(JUNK)),
    ),
    st.sampled_from(JUNK),
    st.sampled_from(
        [
            *(ConnectionError, TimeoutError, ValueError, KeyboardInterrupt, SystemExit, Cancelled),
            *(TransientModelError, InvalidModelOutput, MemoryError, InputError),
        ]
    ),
)
# what a tool does when it is run: reach out with io, return something, or raise
acts = st.one_of(
    st.sampled_from(["get", "read", "write", "list", "swallow"]),
    st.just({"said": "ok"}),
    st.sampled_from(JUNK),
    st.sampled_from(
        [
            *(ConnectionError, ConnectionRefusedError, TimeoutError, OSError, ValueError),
            *(KeyboardInterrupt, SystemExit, Cancelled, GeneratorExit, RecursionError),
        ]
    ),
)
people = st.sampled_from(
    [None, True, False, Answer("allow", "ann", "\ud800"), Answer("silence"), Answer("maybe"), "yes", OSError]
)
policies = st.builds(
    policy_data,
    on_deny=st.sampled_from(["terminate", "inform"]),
    on_failure=st.sampled_from(["terminate", "inform", {"default": "inform", "max_failures": 1}]),
    approval=st.sampled_from([None, {"required_for": ["probe"], "timeout_s": 2}]),
    retry=st.sampled_from([None, {"max_retries": 1}, {"backoff_base_ms": 1, "backoff_cap_ms": 1}]),
    cycle_detection=st.sampled_from([None, {"max_repeats": 1}, {"max_repeats": 3}]),
    redact=st.sampled_from([None, ["email"]]),
    arg_schema_enforcement=st.sampled_from(["strict", "shape"]),
    loop_budget=st.sampled_from(
        [
            {},
            {"max_tokens": 1500},
            {"max_tool_calls": 2},
            {"max_result_bytes": 30},
            {"max_iterations": 2},
            None,
        ]
    ),
)
Plan = dict[str, Any]
plans = st.fixed_dictionaries(
    {
        "replies": st.lists(replies, max_size=6),
        "acts": st.lists(acts, max_size=8),
        "people": st.lists(people, max_size=3),
        "policy": policies,
        "idempotent": st.booleans(),
    }
)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    (folder / "page.md").write_text("a page")
    (folder / "link.md").symlink_to("page.md")
    return folder


def _reach(act: str, args: dict[str, Any], io: Any) -> Any:
    if act == "get":
        return {"said": io.get(args.get("url", "https://good.test/page.md")).text}
    if act == "write":
        io.write(args.get("target", "box/x"), "text")
        return {"said": "written"}
    if act == "list":
        return {"said": " ".join(io.list("books"))}
    try:
        return {"said": io.read(args.get("path", "books/page.md"))}
    except PermissionError:
        if act == "swallow":
            return {"said": "swallowed"}
        raise


def _play(plan: Plan, books: Path, listeners: list[Any]) -> Ran | InputError | BaseException:
    """The run of a plan. What has run out answers, succeeds or keeps silent."""
    said, done, asked = list(plan["replies"]), list(plan["acts"]), list(plan["people"])

    def next_of(items: list[Any], default: Any) -> Any:
        item = items.pop(0) if items else default
        if isinstance(item, type) and issubclass(item, BaseException):
            raise item("text") if item is not InputError else InputError("wrong", remedy="mend it")
        return item

    def run(args: dict[str, Any], io: Any) -> Any:
        act = next_of(done, {"said": "ok"})
        return _reach(act, args, io) if isinstance(act, str) and act != "text" else act

    def model(asked: Any) -> Any:
        return next_of(said, answer())

    host = Host(books, "books", {"/away": "https://evil.test/", "/loop": "/loop"})
    try:
        with patch.object(run_line, "new_nonce", lambda: "0" * 32):  # what differs by itself between two runs
            return perform(
                model,
                [tool(run=run, idempotent=plan["idempotent"]), tool("echo", run)],
                plan["policy"],
                approve=lambda effect: next_of(asked, None),
                mounts={"books": books},
                hosts={"good.test": host, "evil.test": host},
                listeners=listeners,
            )
    except InputError as error:
        return error


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_everything_ends_in_a_sound_record_or_one_complaint(plan: Plan, books: Path) -> None:
    heard: list[Any] = []
    first = _play(plan, books, [])
    again = _play(plan, books, [heard.append])
    if isinstance(first, InputError):
        assert InputError in plan["replies"]
        assert len(str(first).splitlines()) == 1 and str(again) == str(first)
        return
    assert isinstance(first, Ran) and isinstance(again, Ran)
    assert first.state == again.state
    assert [notice.text for notice in heard if notice.what == "line"] == again.state.decode().split("\n")[:-1]
