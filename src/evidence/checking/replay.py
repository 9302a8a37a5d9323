"""Replay recorded runs from their records: no key, no network, the same bytes.

`replayed` answers every effect from the record. `checked` is for CI: models and people answer from the record,
tools are executed again, except those that would reach the network.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ...fail.errors import InputError, OutputError, RecordError, ReplayError
from ...light_dataclasses import replace
from ...runtime.agent import Agent
from ...runtime.core.effects import Effect, Invoke, Outcome
from ...runtime.core.lines import Line
from ...runtime.driver.ports import Executor, Stamps
from ...runtime.formats import canonical_json
from ...runtime.formats.escape import escape_terminal
from ...runtime.journal import ledger
from ...runtime.journal.cassette import Cassette, ReplayExecutor
from ...runtime.journal.recorded_clock import RecordedClock
from ...runtime.models.request_parts import options_of
from ...runtime.resources.url import Malformed, parse_url
from ...runtime.setup.opening import Opening
from ...runtime.setup.run_config import RunConfig, RunResult
from ...runtime.tools.project_modules import versions_of_packages
from ..files import manifest
from ..files.manifest import MANIFEST, STATE
from ..files.writer import Writer
from ..recording.recorded import Recorded, open_record, relative_name, revive
from .cut_off import DecisionsUnderWay
from .differences.compare import BROKEN, Findings, change_on_disk, compare_files, note_drift


def replay(agent: Agent, folder: str | Path) -> RunResult:
    """Execute the run in `folder` again under the policy of `agent`, with every outcome from the record.

    Neither the model nor a tool nor a person is asked.

    Args:
        agent: The agent whose tools and policy apply.
        folder: The folder of a recorded run.

    Returns:
        How the run ends.

    Raises:
        ReplayError: The run asks for something that was not recorded.
        RecordError: `folder` holds no run.

    Example:
        >>> from tachograph import Agent, Policy, Stub, record, replay
        >>> agent = Agent(Stub([{"answer": "At the depot."}]), ["search"], Policy.shipped())
        >>> recorded = record(agent, "Where may a driver sleep?", "my-runs/first")
        >>> replay(agent, "my-runs/first").answer
        'At the depot.'
    """
    recorded = open_record(Path(folder))
    run = recorded.run
    clock = RecordedClock.of(recorded.lines)
    cassette = Cassette.of(recorded.lines[1:-1])
    executor = ReplayExecutor(cassette, clock)
    config = RunConfig(
        run["question"],
        run["run_id"],
        run["seed"],
        clock,
        executor=executor,
        as_recorded=True,
        opening=Opening.of_line(run),
        nonce=run.get("nonce", ""),
        principal=run.get("principal"),
    )
    result = agent.execute(config)
    _all_used(cassette)
    return result


def replayed(folder: Path, *, root: Path | None = None) -> Findings:
    """Replay one run and return how the result differs from the record."""
    findings = Findings(_name_of(folder, root))
    try:
        recorded = open_record(folder, root)
        if recorded.run["schema"] != ledger.SCHEMA:
            raise RecordError(
                f"is of schema {recorded.run['schema']!r}, and this version makes the bytes of {ledger.SCHEMA!r}",
                file=f"{recorded.name}/{STATE}",
                remedy="`tachograph accept` records it anew; `verify` and `show` read it as it is",
            )
        agent, config = revive(recorded)
        cassette = _cassette(recorded)
        clock = config.clock
        assert isinstance(clock, RecordedClock)
        _make(findings, recorded, agent, replace(config, executor=ReplayExecutor(cassette, clock)), cassette)
    except (InputError, OutputError) as error:
        findings.lines.append(str(error))
    return findings


def checked(recorded: Recorded, *, seed: int | None = None) -> Findings:
    """Check a live run as CI does: execute its tools; model, people and network answer from the record.

    Args:
        recorded: The run.
        seed: The seed of the task that decides about the run; None to use the recorded one.
    """
    agent, config = revive(recorded)
    findings = Findings(recorded.name, packages=versions_of_packages(agent.gate.tools.values()))
    if seed is not None:
        config = replace(config, seed=seed)
    cassette = _cassette(recorded, parts=False)
    clock = config.clock
    assert isinstance(clock, RecordedClock)

    def around(live: Executor) -> Executor:
        return ReexecutingTools(live, cassette, agent, clock)

    _make(findings, recorded, agent, replace(config, around=around, offline=True), cassette)
    if findings.lines and (findings.moved or findings.kind != BROKEN):
        findings.accept = _rerecord_command(recorded)
    return findings


def _cassette(recorded: Recorded, *, parts: bool = True) -> Cassette:
    try:
        return Cassette.of(recorded.lines[1:-1], parts=parts)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(f"{recorded.name}/{STATE}", error) from error


def _rerecord_command(recorded: Recorded) -> str:
    """Return the command that records the run again with its model: a replay repeats the old replies."""
    model = recorded.run["model"]
    from ...runtime.models.providers import PROVIDERS  # for few runs

    words = ["tachograph", "run", recorded.run["task"]["path"]]
    if model.get("provider") in PROVIDERS:  # else it is that of an agent in code
        words += ["--llm", f"{model.get('provider')}:{model.get('name')}"]
        for key, value in options_of(recorded.run).items():
            words += ["--llm-option", f"{key}={canonical_json.encode(value)}"]
    return shlex.join([*words, "--out", recorded.name, "--replace"])


def _name_of(folder: Path, root: Path | None) -> str:
    return relative_name(folder, root if root is not None else Path.cwd())


def _make(
    findings: Findings, recorded: Recorded, agent: Agent, config: RunConfig, cassette: Cassette
) -> None:
    writer = Writer(None)
    texts: list[str] = []
    under_way = DecisionsUnderWay()

    def line(data: Line, text: str) -> None:
        texts.append(text)
        writer.line(data, text)

    try:
        result = agent.execute(config, listeners=[under_way], on_line=line, keep_steps=False)
        _all_used(cassette)
    except ReplayError as error:
        findings.lines.append(str(error))
        lines = [json.loads(text) for text in texts]
        cut_off = under_way.line(recorded.lines, len(lines))
        fresh = lines if cut_off is None else [*lines, cut_off]
        note_drift(findings, recorded.lines[: len(fresh)], fresh)
        findings.moved = dict(_moved(recorded))
        findings.lines += [
            f"input moved: {escape_terminal(path)} {change}" for path, change in findings.moved.items()
        ]
        return
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # the ledger is intact, but its model or an outcome has an unknown shape
        raise ledger.unknown_shape(f"{recorded.name}/{STATE}", error) from error
    stable = writer.finish(_with_recorded(result.inputs, recorded))
    files = {**writer.contents(), MANIFEST: manifest.stable(stable).encode("utf-8")}
    compare_files(findings, recorded.files, files, recorded.name, recorded.base)


def _moved(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Yield the inputs whose digests differ from the record, the likely reason why the replay failed."""
    for item in _inputs(recorded):
        change = change_on_disk(item, recorded.base)
        if change is not None and (recorded.base / str(item["path"])).exists():
            yield str(item["path"]), change


def _inputs(recorded: Recorded) -> list[Line]:
    """Return the inputs that the recorded manifest names, as far as it can be read."""
    try:
        inputs = manifest.read(recorded.files[MANIFEST])["inputs"]
        return [item for item in inputs if {"path", "sha256"} <= item.keys()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _with_recorded(inputs: Iterable[Line], recorded: Recorded) -> list[Line]:
    """Return inputs in which documents that were not read again have their recorded digest."""
    then = {str(item["path"]): item["sha256"] for item in _inputs(recorded)}
    return [item if item["sha256"] else {**item, "sha256": then.get(item["path"])} for item in inputs]


def _all_used(cassette: Cassette) -> None:
    unused = cassette.unused()
    if unused is not None:
        raise ReplayError(0, f"a recorded outcome was not asked for: {unused}")


class ReexecutingTools:
    """Execute tools again; take everything else from the cassette."""

    def __init__(self, live: Executor, cassette: Cassette, agent: Agent, clock: RecordedClock) -> None:
        self._live = live
        self._cassette = cassette
        self._recorded = ReplayExecutor(cassette, clock)
        self._agent = agent
        self._unwritten = False  # whether a recorded outcome stands for files that were not written here

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Return the outcome of an effect."""
        if not isinstance(effect, Invoke) or self._must_be_replayed(effect):
            outcome = self._recorded.perform(effect, stamps)
            self._unwritten = self._unwritten or bool(outcome.writes)
            return outcome
        recorded = self._cassette.take(effect)
        return _with_its_secrets(recorded, self._live.perform(effect, stamps))

    def _must_be_replayed(self, effect: Invoke) -> bool:
        """Return whether an attempt cannot be made again here.

        It was external, it used the network, it was cut off by a time limit or by a person, or it may meet a file
        that such an attempt wrote.
        """
        outcome = self._cassette.look(effect)
        if not isinstance(outcome, Outcome) or (
            outcome.fault is not None and outcome.fault.kind == "timeout"
        ):
            return True
        tool = self._agent.gate.tools[effect.call.name]
        if tool.is_external or (self._unwritten and tool.effect != "pure"):
            return True
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
            return True  # it is refused before any connection


# ---- secrets in what tools give again --------------------------------------------------------------------
#
# The number in a placeholder counts the secrets of the whole run, those in replies and in the question included.
# Here these come from the record, and a key that was redacted by its value is unknown. A result therefore counts
# as the recorded one if both are equal except where the record has placeholders.

_PLACEHOLDER: Final = re.compile(r"<secret:[a-z_]+:[1-9][0-9]*>")


def _with_its_secrets(recorded: Outcome, fresh: Outcome) -> Outcome:
    """Return `fresh` with the parts that differ from `recorded` only in secrets taken from there."""
    result = fresh.result
    if recorded.result is not None and result is not None and _is_like(recorded.result.text, result.text):
        result = recorded.result
    checks = fresh.checks
    if _is_like(canonical_json.encode(list(recorded.checks)), canonical_json.encode(list(checks))):
        checks = recorded.checks
    return replace(
        fresh,
        result=result,
        checks=checks,
        reads=_pairs(recorded.reads, fresh.reads),
        writes=_pairs(recorded.writes, fresh.writes),
    )


def _pairs(
    recorded: Iterable[tuple[str, str]], fresh: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    known = [(path, digest) for path, digest in recorded if _PLACEHOLDER.search(path)]
    return tuple(
        next(
            ((old[0], digest) for old in known if old[1] in ("", digest) and _is_like(old[0], path)),
            (path, digest),
        )
        for path, digest in fresh
    )


def _is_like(recorded: str, fresh: str) -> bool:
    """Return whether `fresh` is `recorded` with text inside a JSON string in place of each placeholder."""
    first, *others = _PLACEHOLDER.split(recorded)
    if not others or not fresh.startswith(first):
        return False
    at = len(first)
    for number, part in enumerate(others, 1):
        last = number == len(others)
        end = len(fresh) - len(part) if last and fresh.endswith(part) else fresh.find(part, at + 1)
        if end <= at or (last and not fresh.endswith(part)) or '"' in fresh[at:end].replace('\\"', ""):
            return False
        at = end + len(part)
    return True
