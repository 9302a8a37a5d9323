"""Replay: a recorded run made again from its own record. No key, no network, the same bytes.

`replayed` answers every effect from the record. `checked` is for CI: models and people answer from the
record, tools work again, save those that would reach the network.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...fail.errors import InputError, OutputError, ReplayError
from ...runtime.agent import Agent
from ...runtime.core.effects import Effect, Invoke, Outcome
from ...runtime.core.lines import Line
from ...runtime.driver.ports import Executor, Stamps
from ...runtime.formats import canonical_json
from ...runtime.journal import ledger
from ...runtime.journal.cassette import Cassette, RecordedClock, ReplayExecutor
from ...runtime.resources.url import Malformed, parse_url
from ...runtime.run_config import RunConfig, RunResult
from ..files import manifest
from ..files.manifest import MANIFEST, STATE
from ..files.report import visible
from ..files.writer import Writer
from ..recording.recorded import Recorded, open_record, relative_name, revive
from .compare import BROKEN, Findings, compare_files, note_drift


def replay(agent: Agent, folder: str | Path) -> RunResult:
    """Make the run in `folder` again with the tools and the policy of `agent`, every outcome from the record.

    Raises ReplayError where the run asks for something else than was recorded, RecordError where `folder`
    holds no run.
    """
    recorded = open_record(Path(folder))
    run = recorded.run
    clock = RecordedClock.of(recorded.lines)
    cassette = Cassette.of(recorded.lines[1:-1])
    executor = ReplayExecutor(cassette, clock)
    config = RunConfig(
        run["question"], run["run_id"], run["seed"], clock, executor=executor, as_recorded=True
    )
    result = agent.execute(config)
    _all_used(cassette)
    return result


def replayed(folder: Path, *, root: Path | None = None) -> Findings:
    """Replay one run and say how what it gives differs from what is recorded."""
    found = Findings(_name_of(folder, root))
    try:
        recorded = open_record(folder, root)
        agent, config = revive(recorded)
        cassette = Cassette.of(recorded.lines[1:-1])
        clock = config.clock
        assert isinstance(clock, RecordedClock)
        _make(found, recorded, agent, replace(config, executor=ReplayExecutor(cassette, clock)), cassette)
    except (InputError, OutputError) as error:
        found.lines.append(str(error))
    return found


def checked(recorded: Recorded) -> Findings:
    """Make a live run again as CI does: tools work; model, people and network answer from the record."""
    found = Findings(recorded.name)
    agent, config = revive(recorded)
    cassette = Cassette.of(recorded.lines[1:-1])
    clock = config.clock
    assert isinstance(clock, RecordedClock)

    def around(live: Executor) -> Executor:
        return ReexecutingTools(live, cassette, agent, clock)

    _make(found, recorded, agent, replace(config, around=around, offline=True), cassette)
    if found.lines and (found.moved or found.kind != BROKEN):
        found.accept = _anew(recorded)
    return found


def _anew(recorded: Recorded) -> str:
    """The command that records the run anew, which takes its model: nothing less gives other replies."""
    model = recorded.run["model"]
    words = [
        "tachograph",
        "run",
        recorded.run["task"]["path"],
        "--llm",
        f"{model.get('provider')}:{model.get('name')}",
    ]
    for key, value in model.get("options", {}).items():
        words += ["--llm-option", f"{key}={canonical_json.encode(value)}"]
    return shlex.join([*words, "--out", recorded.name, "--replace"])


def _name_of(folder: Path, root: Path | None) -> str:
    return relative_name(folder, root if root is not None else Path.cwd())


def _make(found: Findings, recorded: Recorded, agent: Agent, config: RunConfig, cassette: Cassette) -> None:
    writer = Writer(None)
    made: list[str] = []

    def line(data: Line, text: str) -> None:
        made.append(text)
        writer.line(data, text)

    try:
        agent.execute(config, on_line=line, keep_steps=False)
        _all_used(cassette)
    except ReplayError as error:
        found.lines.append(str(error))
        note_drift(found, recorded.lines[: len(made)], [json.loads(text) for text in made])
        found.moved = dict(_moved(recorded))
        found.lines += [f"input moved: {visible(path)} {what}" for path, what in found.moved.items()]
        return
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # what a record of ours says of its model, or of an outcome, has another shape
        raise ledger.unknown_shape(f"{recorded.name}/{STATE}", error) from error
    stable = writer.finish()
    files = {**writer.contents(), MANIFEST: manifest.stable(stable).encode("utf-8")}
    compare_files(found, recorded.files, files, recorded.name)


def _moved(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Inputs that are no longer as the record has them: what made the run part from it, most likely."""
    base = recorded.base.resolve()
    for path, then in _digests(recorded.lines[-1]):
        file = (base / path).resolve()
        if file.is_relative_to(base) and file.is_file():
            now = canonical_json.digest(file.read_bytes())
            if now != then:
                yield path, f"{then[:12]} -> {now[:12]}"


def _digests(end: Line) -> Iterator[tuple[str, str]]:
    for item in end.get("inputs", ()):
        if isinstance(item, dict) and {"path", "sha256"} <= item.keys():
            yield str(item["path"]), str(item["sha256"])


def _all_used(cassette: Cassette) -> None:
    left = cassette.unused()
    if left is not None:
        raise ReplayError(0, f"a recorded outcome was not asked for: {left}")


class ReexecutingTools:
    """Tools work again; what cannot or must not be had again comes from the cassette."""

    def __init__(self, live: Executor, cassette: Cassette, agent: Agent, clock: RecordedClock) -> None:
        self._live = live
        self._cassette = cassette
        self._recorded = ReplayExecutor(cassette, clock)
        self._agent = agent

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        if not isinstance(effect, Invoke) or self._is_of_the_world(effect):
            return self._recorded.perform(effect, stamps)
        then = self._cassette.take(effect)
        return _with_its_secrets(then, self._live.perform(effect, stamps))

    def _is_of_the_world(self, effect: Invoke) -> bool:
        """Whether an attempt reached for the network, or was cut off by time or by a person."""
        outcome = self._cassette.look(effect)
        if not isinstance(outcome, Outcome) or (
            outcome.fault is not None and outcome.fault.kind == "timeout"
        ):
            return True
        tool = self._agent.gate.tools[effect.call.name]
        if tool.effect != "network":
            return False
        arguments = effect.call.arguments.value() if effect.call.arguments is not None else None
        named = [
            value
            for resource in tool.resources
            if resource.kind == "url"
            for _, value in resource.find(arguments)
        ]
        met = [check["target"] for check in outcome.checks if "target" in check]
        return not named or not all(self._is_mapped(url) for url in [*named, *met])

    def _is_mapped(self, url: object) -> bool:
        try:
            return isinstance(url, str) and parse_url(url).host in self._agent.hosts
        except Malformed:
            return True  # it is refused before anything is reached


# ---- secrets in what tools give again --------------------------------------------------------------------
#
# A placeholder's number counts what the whole run met, replies and question included, which come from the
# record here; and a key that was known by its value then is unknown now. So a result is the recorded one if
# it is so but for what stands where the record has placeholders.

_PLACEHOLDER: Final = re.compile(r"<secret:[a-z_]+:[1-9][0-9]*>")


def _with_its_secrets(then: Outcome, now: Outcome) -> Outcome:
    """`now`, with what is as recorded but for secrets taken from `then`."""
    result = now.result
    if then.result is not None and result is not None and _is_like(then.result.text, result.text):
        result = then.result
    checks = now.checks
    if _is_like(canonical_json.encode(list(then.checks)), canonical_json.encode(list(checks))):
        checks = then.checks
    return replace(
        now,
        result=result,
        checks=checks,
        reads=_pairs(then.reads, now.reads),
        writes=_pairs(then.writes, now.writes),
    )


def _pairs(then: Iterable[tuple[str, str]], now: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    known = [(path, digest) for path, digest in then if _PLACEHOLDER.search(path)]
    return tuple(
        next((old for old in known if old[1] == digest and _is_like(old[0], path)), (path, digest))
        for path, digest in now
    )


def _is_like(then: str, now: str) -> bool:
    """Whether `now` is `then` with some text, within a string of JSON, in the place of each placeholder."""
    first, *others = _PLACEHOLDER.split(then)
    if not others or not now.startswith(first):
        return False
    at = len(first)
    for number, part in enumerate(others, 1):
        last = number == len(others)
        found = len(now) - len(part) if last and now.endswith(part) else now.find(part, at + 1)
        if found <= at or (last and not now.endswith(part)) or '"' in now[at:found].replace('\\"', ""):
            return False
        at = found + len(part)
    return True
