"""Faults of a task file: where they strike, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachograph.evidence.files.writer import derive
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import TaskError
from tests.support import copy_project

TASK = "tasks/failure_modes/tool_call_failure.yaml"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("faults") / "project")


def _with(project: Path, faults: str) -> Path:
    text = (project / TASK).read_text(encoding="utf-8")
    head, _, rest = text.partition("faults:\n")
    tail = rest[rest.index("expected:") :]
    path = project / "tasks/failure_modes/changed.yaml"
    path.write_text(
        f"{head}faults:\n{faults}\n{tail}".replace("tool_call_failure\n", "changed\n", 1), "utf-8"
    )
    return path


@pytest.mark.parametrize("target", ["tool", "io"])
def test_a_transient_fault_is_tried_again(project: Path, target: str) -> None:
    fault = f"  - {{target: {target}, step: 1, call: 0, attempt: 1, raises: ConnectionResetError}}"
    _, tally = derive(*build(load_task(_with(project, fault), root=project)))
    assert tally.modes == ["tool_call_failure"] and tally.span_counts["retry_attempt"] == 3


def test_what_a_tool_makes_of_a_failing_io_is_the_tools(project: Path) -> None:
    """A tool that swallows the failure succeeds; a fault of the tool itself could not show that."""
    tool = project / "tools/fetch.py"
    before = tool.read_text(encoding="utf-8")
    swallowed = (
        "    try:\n        io.get(args['url'])\n    except OSError:\n"
        "        return {'url': args['url'], 'status': 0, 'content_type': 'text/plain', 'text': 'none'}\n"
    )
    head, mark, _ = before.partition("def run(")
    tool.write_text(f"{head}{mark}args: dict[str, Any], io: Any) -> dict[str, Any]:\n{swallowed}", "utf-8")
    try:
        for target, attempts in (("io", 1), ("tool", 4)):
            fault = f"  - {{target: {target}, step: 1, call: 0, raises: ConnectionResetError}}"
            files, _ = derive(*build(load_task(_with(project, fault), root=project)))
            step = files["state.jsonl"].split(b"\n")[1]
            assert step.count(b"ConnectionResetError") == (0 if target == "io" else 2 * attempts)
    finally:
        tool.write_text(before, encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("{target: io, step: 1, raises: OSError}", "needs call"),
        ("{target: tool, step: 1, raises: OSError}", "needs call"),
        ("{target: io, step: 1, call: 0, delays_ms: 5}", "raises"),
        ("{target: io, step: 1, call: 0, raises: OSError, returns: {}}", "raises"),
        ("{target: disk, step: 1, call: 0, raises: OSError}", "must be one of model, tool, io"),
        ("{target: tool, step: 1, call: 0, raises: NoSuchError}", "not a builtin exception"),
    ],
)
def test_what_can_never_strike_is_refused_at_its_place(project: Path, fault: str, wrong: str) -> None:
    with pytest.raises(TaskError, match=wrong) as caught:
        build(load_task(_with(project, f"  - {fault}"), root=project))
    assert caught.value.line is not None and caught.value.remedy
