"""Pages written from the catalog and the recorded runs: gates, failure modes, capabilities."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from tachograph.evidence.checking.proof import UNPROVEN, WHEN
from tachograph.evidence.files.manifest import STATE
from tachograph.evidence.tasks.task import load_task
from tachograph.fail.catalog import ENDINGS, MODES, Denied, Happening, classify, happenings, key_of
from tachograph.fail.errors import InputError, RecordError
from tachograph.runtime.core.lines import Line
from tachograph.runtime.formats.escape import escape_markdown
from tachograph.runtime.journal import ledger
from tachograph.runtime.journal.ledger import ledger_schema
from tachograph.tracing.spans import spans_of

GATES: Final = "docs/policy-gates.md"
MODES_PAGE: Final = "docs/failure-modes.md"
CATALOG: Final = "src/fail/failure_modes.md"
CAPABILITIES: Final = "docs/capabilities.md"
EVIDENCE: Final = "docs/evidence.md"
LINES: Final = ("<!-- lines -->\n", "<!-- /lines -->")  # around the table of the ledger's schema
FIELDS: Final = ("<!-- unproven -->\n", "<!-- /unproven -->")  # around the list of unproven fields
# in the order of the tree
SPANS: Final = ("agent_run", "agent_step", "llm_call", "policy_check", "tool_call", "retry_attempt", "hook")
KINDS: Final = (
    "canonical",
    "code",
    "examples",
    "policy_gates",
    "tool_rules",
    "failure_modes",
    "loop",
    "live",
)


def pages(root: Path) -> dict[str, str]:
    """Return the pages: path relative to the root -> text. Raises InputError for what cannot be read."""
    out = {GATES: _gates(root), MODES_PAGE: _failure_modes(root), CAPABILITIES: _capabilities(root)}
    if (root / CATALOG).parent.is_dir():  # beside the code, where a project has it
        out[CATALOG] = _catalog()
    evidence = _text(root, EVIDENCE)
    if evidence is not None:
        out[EVIDENCE] = _with_unproven(_with_lines(evidence))
    return out


def _text(root: Path, name: str) -> str | None:
    """Return the text of a page; None where there is none."""
    try:
        return (root / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({type(error).__name__})", file=name, remedy="restore it") from None


def stale(root: Path) -> list[str]:
    """Return one line for each page that differs from what catalog and runs give."""
    out = []
    for name, text in pages(root).items():
        if _text(root, name) != text:
            out.append(f"{name}: is not what catalog and runs give; write it with `make evidence-build`")
    return out


def write(root: Path) -> None:
    """Write the pages that are stale."""
    for name, text in pages(root).items():
        if _text(root, name) != text:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")


def _runs(root: Path, kind: str) -> list[tuple[str, str, list[Line]]]:
    """Return (name, title, ledger lines) of the recorded runs of a kind."""
    out = []
    for folder in sorted((root / "runs" / kind).glob("*/")):
        state = folder / STATE
        file = f"tasks/{kind}/{folder.name}.yaml"
        if not state.is_file():
            continue
        name = state.relative_to(root).as_posix()
        if not (root / file).is_file():
            raise RecordError(
                f"there is no task {file}",
                file=f"runs/{kind}/{folder.name}",
                remedy="restore it, or move the run out of runs/",
            )
        task = load_task(root / file, root=root)
        lines = list(ledger.read(state.read_bytes(), name))
        try:
            spans_of(lines)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise RecordError(
                f"has lines of an unknown shape ({type(error).__name__})",
                file=name,
                remedy="record the run again",
            ) from error
        out.append((folder.name, str(task.data["title"]), lines))
    return out


def _with_lines(text: str) -> str:
    """Return the page with the table of the ledger's schema written anew; without the marks it stays as it is."""
    before, begin, rest = text.partition(LINES[0])
    _, end, after = rest.partition(LINES[1])
    if not begin or not end:
        return text
    rows = ["| line or entry | key | JSON | holds |", "|---|---|---|---|"]
    values = []
    for name, schema in ledger_schema()["$defs"].items():
        required = schema.get("required", ())
        for key, part in schema.get("properties", {}).items():
            mark = "" if key in required else "?"
            kind = _json_kind(part)
            if len(kind) > 28:
                values.append(_item(f"`{name}`, `{key}`: {kind}"))
                kind = "string, see below"
            rows.append(f"| `{name}` | `{key}`{mark} | {kind} | {part.get('description', '')} |")
    rows += ["", "The values of the longer sets:", "", *values]
    return f"{before}{begin}\n" + "\n".join(rows) + f"\n\n{end}{after}"


def _with_unproven(text: str) -> str:
    """Return the page with the list of unproven fields written anew; without the marks it stays as it is."""
    before, begin, rest = text.partition(FIELDS[0])
    _, end, after = rest.partition(FIELDS[1])
    if not begin or not end:
        return text
    rows = ["| line | field | holds | is unproven in a |", "|---|---|---|---|"]
    rows += [
        f"| {entry.line} | `{entry.pattern}` | {entry.says} | {WHEN[entry.when]} |" for entry in UNPROVEN
    ]
    return f"{before}{begin}\n" + "\n".join(rows) + f"\n\n{end}{after}"


def _json_kind(part: dict[str, Any]) -> str:
    """Return what a schema allows, in a word or two."""
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return " ".join(f"`{word}`" for word in part["enum"])
    if "$ref" in part:
        return f"`{part['$ref'].rpartition('/')[2]}`"
    if "anyOf" in part:
        return " or ".join(_json_kind(choice) for choice in part["anyOf"])
    kinds = part.get("type", "any")
    items = part.get("items", {})
    if "$ref" in items:
        return f"array of {_json_kind(items)}"
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _capabilities(root: Path) -> str:
    rows = []
    for kind in KINDS:
        for name, title, lines in _runs(root, kind):
            counts = Counter(span.name for span in spans_of(lines))
            signature = ", ".join(f"{counts[span]} {span}" for span in SPANS if counts[span])
            rows.append(_item(f"{escape_markdown(title)}:", f"[`{name}`](../runs/{kind}/{name})", signature))
    head = [
        "# Capabilities",
        "",
        "Each capability is a recorded run; the signature counts the spans of its trace. Written by",
        "`make evidence-build`, proved by `make evidence-check`.",
        "",
    ]
    return "\n".join([*head, *rows, ""])


def _item(*texts: str) -> str:
    """Return texts as one entry of a list; each begins on a line of its own, none over 120 characters long."""
    lines = [
        line for text in texts for line in wrap(text, 116, break_long_words=False, break_on_hyphens=False)
    ]
    return "- " + "\n  ".join(lines)


def _run(kind: str, name: str, title: str, *texts: str) -> str:
    """Return the entry of a recorded run: what happens, what its record shows, its report."""
    report = f"([report](../runs/{kind}/{name}/run_report.md))."
    return _item(f"`{name}`: {escape_markdown(title)}.", *texts, report)


def _gates(root: Path) -> str:
    rows = []
    for name, title, lines in _runs(root, "policy_gates"):
        decisions = [d for line in lines[1:-1] for d in line["policy_decisions"]]
        denials = [d for d in decisions if d["decision"] == "deny"]
        shown = "; ".join(f"deny `{d['rule_id']}` ({d['phase']}) by `{d['at']}`" for d in denials)
        answers = [d["approval"]["answer"] for d in decisions if "approval" in d]
        if answers:
            shown = "; ".join(filter(None, [shown, *(f"a person said {answer}" for answer in answers)]))
        rows.append(_run("policy_gates", name, title, f"{shown or 'allow'}; ends as {_end(lines)}"))
    return "\n".join(
        [
            "# Policy gates",
            "",
            "Each entry is a recorded run under `runs/policy_gates/`, made by the task of the same name in",
            "`tasks/policy_gates/` with the real tools, under the shipped policy or an overlay of it. Written by",
            "`make evidence-build`; make them with `make policy-gates`, prove them with `make policy-gates-check`.",
            "",
            *rows,
            "",
            "Read them from the structure: a denied call has a `policy_check` span with `agent.policy.decision` =",
            "`deny` and no `tool_call` beside it; a late denial is a `policy_check` with phase `execution` below",
            "the attempt.",
            "",
            "A call is decided by the gate, then by [hooks](code.md#hooks), then by a person, in that order: hooks are",
            "asked only about what the gate does not deny, and a person only about what no hook denies. Runs with",
            "hooks are among the [capabilities](capabilities.md).",
            "",
        ]
    )


def _end(lines: list[Line]) -> str:
    mode = lines[-1]["failure_mode"]
    return f"`{lines[-1]['terminal_reason']}`" + (f", mode `{mode}`" if mode else "")


def _failure_modes(root: Path) -> str:
    runs_of: Counter[str] = Counter()
    rows = []
    for name, title, lines in _runs(root, "failure_modes"):
        modes = [line["failure_mode"] for line in lines[1:-1] if line["failure_mode"]]
        runs_of.update(set(modes))
        outcomes = [a["outcome"] for line in lines[1:-1] for r in line["tool_results"] for a in r["attempts"]]
        shown = f"modes {', '.join(f'`{mode}`' for mode in modes) or 'none'}; ends as {_end(lines)}"
        attempts = f"attempts of tools: {', '.join(outcomes) or 'none'}"
        rows.append(_run("failure_modes", name, title, shown, attempts))
    return "\n".join(
        [
            "# Failure modes",
            "",
            "Every failure is classified in one place, `src/fail/catalog.py`, and carries its mode as `failure_mode`",
            "in the ledger and `agent.failure_mode` on the step's span. Written by `make evidence-build`.",
            "",
            "| mode | means | runs below |",
            "|---|---|---:|",
            *(f"| `{mode}` | {text} | {runs_of[mode]} |" for mode, text in MODES.items()),
            "",
            *_what_follows(),
            "## The recorded runs",
            "",
            "Made with the real tools and faults injected by the task file: `make failure-modes`, and proved:",
            "`make failure-modes-check`.",
            "",
            *rows,
            "",
        ]
    )


def _what_follows() -> list[str]:
    """Return the tables of happenings and endings, from the catalog alone."""
    table = []
    for happening in happenings():
        terminate, inform = (classify(happening, word, word) for word in ("terminate", "inform"))
        key = f"`{key_of(happening)}`" if terminate.ending != inform.ending else "either"
        row = (
            f"| `{words_of(happening)}` | {_or_none(terminate.mode)} | {key} "
            f"| {_or_none(terminate.ending, 'goes on')} "
            f"| {_or_none(inform.ending, 'told, goes on' if terminate.ending else 'goes on')} |"
        )
        if row not in table:
            table.append(row)
    return [
        "## What happens, and what follows",
        "",
        "A key of the policy says what follows. The model is told of `max_failures` failures in a run at most, and of",
        "answers that do not fit as often as the agent's `output_retries` says.",
        "",
        "| happening | mode | key | ending under `terminate` | under `inform` |",
        "|---|---|---|---|---|",
        *table,
        "",
        "## Endings",
        "",
        "| `agent.terminal_reason` | means |",
        "|---|---|",
        *(f"| `{ending}` | {text} |" for ending, text in ENDINGS.items()),
        "",
    ]


def words_of(happening: Happening) -> str:
    """Return a happening as code has it; a repeated denial stands for those of every rule."""
    if isinstance(happening, Denied) and happening.repeated:
        return "Denied(..., repeated)"
    fields = asdict(happening)
    words = [name if value is True else str(value) for name, value in fields.items() if value is not False]
    return f"{type(happening).__name__}({', '.join(words)})"


def _catalog() -> str:
    return "\n".join(
        [
            "# The catalog of failure modes",
            "",
            "What `catalog.py` says, for those who read rather than run; with the recorded runs in",
            "[docs/failure-modes.md](../../docs/failure-modes.md). Written by `make evidence-build`.",
            "",
            "| mode | means |",
            "|---|---|",
            *(f"| `{mode}` | {text} |" for mode, text in MODES.items()),
            "",
            *_what_follows(),
        ]
    )


def _or_none(value: str | None, none: str = "none") -> str:
    return f"`{value}`" if value else none
