"""What an adapted function gets, what becomes of what it returns or raises, and whose code it is."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

from tachograph.adapters import resource, tool_from_function
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.tools.deadline import deadline
from tests.adapters.kit import IO, one_call, outcome
from tests.support import policy_data


class Depth(enum.Enum):
    DEEP = "deep"


@dataclass
class Part:
    number: int
    tags: list[str] = field(default_factory=list)
    depth: Depth = Depth.DEEP


class Note(TypedDict):
    text: str
    by: NotRequired[str]


def made(function: Any, **more: Any) -> Tool:
    return tool_from_function(function, **{"effect": "pure", "idempotent": True, "name": "probe", **more})


def _url(url: str) -> str:
    """Get."""
    return url


def _place(place: str, path: str) -> str:
    """Get."""
    return path


def _silent(x: int) -> int:
    return x


# ---- what the function gets ----------------------------------------------------------------------------


def test_it_gets_the_url_that_the_gate_read() -> None:
    tool = made(_url, resources={"url": "url"}, effect="network")
    assert outcome(one_call(tool, {"url": "HTTPS://GOOD.test:443/a?b#c"})) == "https://good.test/a?b"
    ran = one_call(tool, {"url": "https://evil.test/"})
    assert outcome(ran) == "denied" and ran.decisions[0]["rule_id"] == "url_allowlist"


def test_with_io_it_goes_the_only_way_out(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text", encoding="utf-8")
    (tmp_path / "b.md").symlink_to(tmp_path / "a.md")

    def look(path: Annotated[str, resource("path:read")], io: Any) -> str:
        """Look."""
        return str(io.read(path))

    look.__annotations__ = {"path": Annotated[str, resource("path:read")], "io": Any, "return": str}
    tool = made(look, effect="read")
    assert list(tool.input_schema["properties"]) == ["path"]
    assert outcome(one_call(tool, {"path": "books/a.md"}, mounts={"books": tmp_path})) == "text"
    late = one_call(tool, {"path": "books/b.md"}, mounts={"books": tmp_path})
    assert outcome(late) == "denied" and late.decisions[-1]["phase"] == "execution"


def test_a_path_becomes_a_private_copy_or_stays_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one\r\ntwo", encoding="utf-8", newline="")
    seen: list[str] = []

    def count(path: str) -> dict[str, int]:
        """Count."""
        seen.append(path)
        return {path: len(Path(path).read_bytes())}

    tool = made(count, effect="read", resources={"path": "path:read"}, paths="copy")
    ran = one_call(tool, {"path": "books/a.md"}, mounts={"books": tmp_path})
    assert outcome(ran) == {"books/a.md": 8}
    assert seen[0].endswith("/books/a.md") and not Path(seen[0]).exists()
    assert str(tmp_path) not in seen[0] and seen[0].encode() not in ran.state
    text = made(_place, resources={"path": "path:read"}, paths="text")
    assert (
        outcome(one_call(text, {"place": "", "path": "books/a.md"}, mounts={"books": tmp_path}))
        == "books/a.md"
    )


# ---- what it returns -----------------------------------------------------------------------------------


@dataclass
class Found:
    part: Part
    where: tuple[int, int] = (1, 2)


RESULTS: list[tuple[Any, Any, Any]] = [
    (dict[str, int], {"a": 1}, {"a": 1}),
    (list[Depth], [Depth.DEEP], ["deep"]),
    (Part, Part(1), {"number": 1, "tags": [], "depth": "deep"}),
    (Found, Found(Part(1)), {"part": {"number": 1, "tags": [], "depth": "deep"}, "where": [1, 2]}),
    (Note | None, {"text": "t"}, {"text": "t"}),
    (Any, (1, [Depth.DEEP, None]), [1, ["deep", None]]),
    (list, ["x"], ["x"]),
    (dict, {"x": 1.5}, {"x": 1.5}),
    (object, 3, 3),
]


@pytest.mark.parametrize(("returns", "value", "result"), RESULTS, ids=lambda item: str(item)[:40])
def test_a_result_is_the_data_in_it(returns: Any, value: Any, result: Any) -> None:
    def give() -> Any:
        """Give."""
        return value

    assert outcome(one_call(made(give, returns=returns), {})) == result


@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (Any, object()),
        (Any, {"a": [object()]}),
        (Any, {1, 2}),
        (Any, b"bytes"),
        (Any, float("nan")),
        (Any, Path("x")),
        (int, "text"),
        (Part, {"number": "1"}),
        (dict, []),
        (list[str], [1]),
        (None, 1),
    ],
    ids=lambda item: str(item).partition(" at 0x")[0],
)
def test_what_is_no_data_or_other_data_than_said_is_invalid(returns: Any, value: Any) -> None:
    def give() -> Any:
        """Give."""
        return value

    ran = one_call(made(give, returns=returns), {})
    assert outcome(ran) == "failed" and ran.end["failure_mode"] == "tool_output_invalid"
    assert b"0x" not in ran.state


def test_a_result_that_holds_itself_is_invalid_too() -> None:
    def give() -> Any:
        """Give."""
        inner: list[Any] = []
        inner.append(inner)
        return inner

    ran = one_call(made(give), {})
    assert ran.end["failure_mode"] == "tool_output_invalid"


# ---- failures ------------------------------------------------------------------------------------------


class Hiccup(Exception):
    """Of some library."""


def test_foreign_exceptions_are_worth_another_attempt_where_it_says_so() -> None:
    left: list[Exception] = []

    def give() -> int:
        """Give."""
        if left:
            raise left.pop()
        return 7

    left[:] = [Hiccup("x")]
    ran = one_call(made(give, transient=[Hiccup]), {})
    assert outcome(ran) == 7
    fault = ran.results[0]["attempts"][0]["fault"]
    assert (fault["exception"], fault["kind"]) == ("Hiccup", "transient")
    left[:] = [Hiccup("x")]
    assert one_call(made(give), {}).end["failure_mode"] == "catalogued_unhandled"
    left[:] = [Hiccup("x")]
    careful = one_call(made(give, transient=[Hiccup], idempotent=False), {})
    assert careful.end["failure_mode"] == "retry_exhaustion"
    left[:] = [KeyError("x")]
    assert outcome(one_call(made(give, transient=[KeyError]), {})) == 7


# ---- coroutines ----------------------------------------------------------------------------------------


async def _slowly(seconds: float) -> int:
    """Sleep."""
    await asyncio.sleep(seconds)
    return 1


def test_a_coroutine_function_is_run_to_its_end_with_a_loop_around_or_without() -> None:
    tool = made(_slowly)
    assert tool.run({"seconds": 0}, IO) == {"result": 1}

    async def around() -> Any:
        return tool.run({"seconds": 0}, IO)

    assert asyncio.run(around()) == {"result": 1}

    async def fails() -> int:
        """Fail."""
        raise Hiccup("x")

    failing = made(fails)

    async def around_failure() -> Any:
        return failing.run({}, IO)

    for run in (lambda: failing.run({}, IO), lambda: asyncio.run(around_failure())):
        with pytest.raises(Hiccup):
            run()


def test_a_coroutine_that_is_out_of_time_ends() -> None:
    tool = made(_slowly, timeout_s=0.2)
    ran = one_call(tool, {"seconds": 60}, policy=policy_data(retry=None))
    assert ran.end["failure_mode"] == "timeout"

    async def around() -> None:
        with deadline(0.2):
            tool.run({"seconds": 60}, IO)

    with pytest.raises(TimeoutError):
        asyncio.run(around())
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(5)
            assert not thread.is_alive()


# ---- the code's identity -------------------------------------------------------------------------------


def test_the_digest_is_of_the_source() -> None:
    assert made(_silent, description="x").digest != made(_url, resources={"url": "url"}).digest
    names: dict[str, Any] = {}
    exec("def made_up(x: int) -> int:\n    'Make.'\n    return x\n", names)
    assert made(names["made_up"]).digest is None


def test_a_bound_method_is_a_tool() -> None:
    class Shop:
        def price(self, of: str) -> int:
            """The price."""
            return len(of)

    Shop.price.__annotations__ = {"of": str, "return": int}
    tool = made(Shop().price)
    assert tool.run({"of": "abc"}, IO) == {"result": 3}
    assert dataclasses.replace(tool, probe=lambda args, io: "done").resources == ()
