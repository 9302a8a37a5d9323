"""What tests of adapted tools share: an `io` that only knows its key, and a run of one call."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tachograph.fail.errors import InputError
from tachograph.runtime.tools.contract import Tool
from tests.support import Ran, answer, ask, perform, probe

IO = SimpleNamespace(idempotency_key="test-run/1/0")


def refused(make: Callable[[], object]) -> str:
    """The one line of a refusal."""
    try:
        make()
    except InputError as error:
        assert "\n" not in str(error) and error.remedy, str(error)
        return str(error)
    raise AssertionError("nothing was refused")


def one_call(tool: Tool, *times: dict[str, Any], **more: Any) -> Ran:
    """A run in which the tool, which is called `probe`, is called with each of these arguments."""
    assert tool.name == "probe"
    return perform([*(ask(probe(**arguments)) for arguments in times), answer()], [tool], **more)


def outcome(ran: Ran) -> Any:
    """What came of the only call: its result, or its status."""
    (found,) = ran.results
    return found["result"]["result"] if found["status"] == "ok" else found["status"]
