"""A run that a signal stopped: what `run` says of it, and what `--resume` and `--discard` do."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.faults.lab import Lab, lab
from tests.faults.scene import RUN, TASK


@pytest.fixture(scope="module")
def one() -> Iterator[Lab]:
    with lab(shim=False) as made:
        assert made.whole
        yield made


@pytest.fixture
def stopped(one: Lab) -> Lab:
    """A lab in which a run was stopped while a tool ran that may not be repeated."""
    one.scene.clear()
    one.scene.hold.touch()
    done = one.run(send=[{"when": str(one.scene.held), "signal": signal.SIGTERM}])
    one.scene.hold.unlink()
    assert done.code == 143
    assert (
        done.said == f"tachograph: suspended: SIGTERM stopped the run; go on with `tachograph resume {RUN}`"
    )
    return one


def test_run_refuses_and_names_both_ways(stopped: Lab) -> None:
    before = stopped.scene.journal.read_bytes()
    done = stopped.run()
    assert done.code == 2
    assert f"`tachograph resume {RUN}`" in done.said and "`tachograph run --discard`" in done.said
    assert stopped.scene.journal.read_bytes() == before


def test_run_resume_goes_on_and_begins_where_nothing_is(stopped: Lab) -> None:
    done = stopped.run("--resume")
    assert done.code == 3 and "--not-done tc_3_0" in done.said, "the call that was interrupted is in doubt"
    gone_on = stopped.do("resume", RUN, "--not-done", "tc_3_0")
    assert gone_on.code == 0 and "allow" in gone_on.out
    assert "#/" not in gone_on.out, "a rule is named by its line, as `run` names it"
    assert stopped.scene.files() == stopped.whole
    stopped.scene.clear()
    assert stopped.run("--resume").code == 0
    assert stopped.scene.files() == stopped.whole


def test_another_model_than_the_task_provides_for_is_refused_before_anything_is_done(stopped: Lab) -> None:
    before = stopped.scene.journal.read_bytes()
    done = stopped.resume("--llm", "openai:other", "--not-done", "tc_3_0")
    assert done.code == 2 and "does not say `live: " in done.said and "name openai:other" in done.said
    assert stopped.scene.journal.read_bytes() == before
    assert stopped.resume("--not-done", "tc_3_0").code == 0
    assert stopped.scene.files() == stopped.whole


def test_run_discard_begins_anew(stopped: Lab) -> None:
    assert stopped.run("--discard").code == 0
    assert stopped.scene.files() == stopped.whole
    assert [path.name for path in stopped.scene.run.parent.iterdir()] == ["ten"]


def test_both_at_once_are_refused(stopped: Lab) -> None:
    done = stopped.run("--resume", "--discard")
    assert done.code == 2 and "both given" in done.said


def test_the_run_of_another_task_is_not_gone_on_with(one: Lab) -> None:
    one.scene.clear()
    other = one.scene.root / "tasks/faults/other.yaml"
    other.write_text((one.scene.root / TASK).read_text().replace("faults-ten", "faults-other"))
    one.scene.hold.touch()
    send = [{"when": str(one.scene.held), "signal": signal.SIGTERM}]
    assert one.run("--out", "outside/kept", send=send).code == 143
    done = one.do("run", "tasks/faults/other.yaml", "--out", "outside/kept", "--resume")
    other.unlink()
    assert done.code == 2 and f"is of another task, {TASK}" in done.said
    assert (one.scene.root / "outside/kept.partial/journal.jsonl").exists()


def test_expectations_are_judged_when_the_run_ends(one: Lab) -> None:
    """A run that is stopped, and ends otherwise than its task expects, is kept aside in the end."""
    task = one.scene.root / TASK
    text = task.read_text()
    task.write_text(text.replace("ending: final_answer", "ending: loop_budget"))
    try:
        one.scene.clear()
        one.scene.hold.touch()
        done = one.run(send=[{"when": str(one.scene.held), "signal": signal.SIGINT}])
        one.scene.hold.unlink()
        assert done.code == 130 and not one.scene.rejected.exists()
        done = one.resume("--not-done", "tc_3_0")
        assert done.code == 1 and "missed what its task expects" in done.err
        assert one.scene.rejected.exists() and not one.scene.run.exists()
    finally:
        task.write_text(text)


def test_the_task_may_say_that_a_signal_ends_the_run(one: Lab) -> None:
    task = one.scene.root / TASK
    text = task.read_text()
    task.write_text(text + "on_signal: cancel\n")
    try:
        one.scene.clear()
        one.scene.hold.touch()
        assert one.run(send=[{"when": str(one.scene.held), "signal": signal.SIGINT}]).code == 130
        assert one.scene.rejected.exists() and not one.scene.partial.exists()
    finally:
        task.write_text(text)
