"""A run as one page that loads nothing: how it ended, where its time went, every step, the policy behind it."""

from __future__ import annotations

from typing import Any, Final

from ..fail.catalog import ENDINGS, MODES
from .charts import budgets, count, duration, lanes, tree_of, waterfall
from .markup import Html, Part, el, join, page
from .model import PolicyFile, Run, of_known_shape
from .steps import long_text, step_of

Line = dict[str, Any]

OPEN: Final = 12  # steps; with more, a page begins folded
GROUP: Final = 40  # steps; a browser with scripts reads those behind them when the page stands
WHOLE: Final = 250  # lines; of a longer policy file only those around the decisions are shown
AROUND: Final = 2


def run_page(run: Run, *, home: str | None = None) -> str:
    """The page of a run. `home` is the address of a page over all runs, where there is one.

    Raises RecordError where its ledger holds something else than a run writes.
    """
    with of_known_shape(run.name):
        return _page(run, home)


def _page(run: Run, home: str | None) -> str:
    timed = ("timeline",) if any(step.pieces for step in run.steps) else ()
    body = [
        top(home, ("steps", *timed, "budgets", "policy", "provenance")),
        el(
            "main",
            _head(run),
            _said(run),
            _steps(run),
            _timeline(run),
            _budgets(run),
            _policy(run),
            _provenance(run),
            id="main",
        ),
        help_box(),
        el(
            "footer",
            el(
                "p",
                "Made by tachograph from the run's ledger alone. This page loads nothing and sends nothing.",
            ),
        ),
    ]
    return page(f"{run.title} · run", body)


# ---- what all pages share --------------------------------------------------------------------------------------


def top(home: str | None, places: tuple[str, ...], skip: str = "steps") -> Html:
    """The first line of a page: where it belongs, its `places`, the buttons that scripts bring to life."""
    brand: Part = el("a", "All runs", href=home) if home else el("span", "tachograph")
    links = [el("li", el("a", place.capitalize(), href=f"#{place}")) for place in places]
    return join(
        [
            el("a", f"Skip to the {skip}", href=f"#{skip}", class_="skip"),
            el(
                "header",
                el("p", brand, class_="brand"),
                el("nav", el("ul", links), aria_label="On this page") if links else None,
                el(
                    "p",
                    el("button", "Light or dark", type="button", id="theme"),
                    " ",
                    el("button", "Keys", type="button", id="keys", aria_haspopup="dialog"),
                    class_="tools js",
                ),
                class_="top",
            ),
        ]
    )


_KEYS: Final = (
    ("j", "the next step, or row"),
    ("k", "the one before"),
    ("Enter", "open or fold it"),
    ("o", "open or fold all"),
    ("/", "search"),
    ("t", "light or dark"),
    ("?", "this list"),
    ("Esc", "close it, or clear the search"),
)


def help_box() -> Html:
    """The list of keys, with a switch for those of one letter."""
    rows = [el("tr", el("th", el("kbd", key), scope="row"), el("td", words)) for key, words in _KEYS]
    return el(
        "dialog",
        el("h2", "Keys", id="help-title"),
        el("table", el("tbody", rows)),
        el("p", el("label", el("input", type="checkbox", id="single", checked=True), " keys of one letter")),
        el("p", el("button", "Close", type="button", id="close")),
        id="help",
        aria_labelledby="help-title",
    )


def steps_section(steps: list[Html], *, is_open: bool) -> Html:
    """The steps with their search. Groups behind the first are read when the page stands, where scripts run."""
    groups = [el("div", steps[:GROUP], class_="group")]
    for at in range(GROUP, len(steps), GROUP):
        groups.append(el("div", el("noscript", steps[at : at + GROUP]), class_="group"))
    search = el(
        "p",
        el("label", "Search the steps", for_="search"),
        " ",
        el("input", type="search", id="search", autocomplete="off", spellcheck="false"),
        " ",
        el("button", "Fold all" if is_open else "Open all", type="button", id="all"),
        " ",
        el("span", count(len(steps), "step"), id="found", role="status"),
        class_="search js",
    )
    whole = el("div", groups, class_="steps")
    return el("section", el("h2", "Steps"), search, whole, id="steps", tabindex="-1")


def facts(pairs: list[tuple[str, Part]]) -> Html:
    """Names and values."""
    return el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in pairs], class_="facts")


def ending_of(run: Run) -> Html:
    """How a run ended, as a word with a shape and in a sentence."""
    if run.end is None:
        return el(
            "p",
            el("span", "unfinished", class_="b other"),
            " The run is under way, or died.",
            class_="ending",
        )
    reason, mode = str(run.end["terminal_reason"]), run.end["failure_mode"]
    good = "allow" if reason == "final_answer" else "deny"
    words = ENDINGS.get(reason, "an unknown ending")
    why = f" Failure mode {mode}: {MODES.get(mode, 'an unknown mode')}." if mode else ""
    return el(
        "p", el("span", reason, class_=f"b {good}"), f" {words[:1].upper()}{words[1:]}.{why}", class_="ending"
    )


def totals_of(run: Run) -> Line:
    """The totals of the end line, or those so far."""
    if run.end is not None:
        totals: Line = run.end["totals"]
        return totals
    used = run.steps[-1].used if run.steps else (0, 0, 0, 0)
    attempts = sum(len(call.attempts) for step in run.steps for call in step.calls)
    return {"steps": len(run.steps), "tool_calls": used[2], "attempts": attempts, "retries": attempts - used[2],
            "denials": 0, "input_tokens": used[1], "output_tokens": 0, "result_bytes": used[3]}  # fmt: skip


def tokens_of(run: Run) -> int:
    """Tokens in and out."""
    totals = totals_of(run)
    return int(totals["input_tokens"] + totals["output_tokens"])


# ---- the parts of a run's page ---------------------------------------------------------------------------------


def _head(run: Run) -> Html:
    totals = totals_of(run)
    numbers: list[tuple[str, Part]] = [
        (name, f"{totals[key]:,}")
        for name, key in (
            ("steps", "steps"),
            ("calls", "tool_calls"),
            ("attempts", "attempts"),
            ("retries", "retries"),
            ("denials", "denials"),
        )
    ]
    numbers += [("tokens", f"{tokens_of(run):,}"), ("time", duration(run.duration))]
    left = el("ul", [el("li", words) for words in run.open], class_="open") if run.open else None
    return el(
        "section",
        el("p", run.name, class_="soft path"),
        el("h1", run.title),
        ending_of(run),
        left,
        facts(numbers),
        class_="head",
        aria_label="The run",
    )


def _said(run: Run) -> Html:
    answer = run.end["final_answer"] if run.end is not None else None
    parts: list[Part] = [el("h2", "Question"), long_text(run.run["question"]), el("h2", "Answer")]
    parts.append(
        long_text(answer)
        if answer is not None
        else el("p", "None: the run ended without one." if run.end else "None yet.", class_="soft")
    )
    return el("section", parts, class_="said-all", aria_label="Question and answer")


def _steps(run: Run) -> Html:
    number = len(run.steps)
    with_spans = not tree_of(run)
    steps = [step_of(run, step, is_open=number <= OPEN, with_spans=with_spans) for step in run.steps]
    return steps_section(steps, is_open=number <= OPEN)


def _timeline(run: Run) -> Html | None:
    if not any(step.pieces for step in run.steps):
        return None  # a journal's outcomes come without them
    tree = tree_of(run)
    parts: list[Part] = [el("h2", "Timeline"), lanes(run)]
    if tree:
        parts += [
            el("h3", "Spans"),
            waterfall(tree, tree[0].start, run.duration, "Spans of the run", linked=True),
        ]
    else:
        parts.append(el("p", "The spans of a step stand in the step.", class_="soft"))
    return el("section", parts, id="timeline")


def _budgets(run: Run) -> Html:
    return el("section", el("h2", "Budgets"), budgets(run), id="budgets")


def _policy(run: Run) -> Html:
    policy = run.run["policy"]
    used: dict[int, set[int]] = {}
    for step in run.steps:
        for decision in step.line["policy_decisions"]:
            found = run.line_at(decision["at"])
            if found is not None:
                used.setdefault(found[0], set()).add(found[1])
    files = [_policy_file(index, file, used.get(index, set())) for index, file in enumerate(run.policy)]
    words = el(
        "p", "Version ", el("code", policy["version"]), ", on a denial: ", el("code", policy["on_deny"]), "."
    )
    return el("section", el("h2", "Policy"), words, files, id="policy")


def _policy_file(index: int, file: PolicyFile, used: set[int]) -> Html:
    head = el("h3", el("code", file.path))
    if file.lines is None:
        return join([head, el("p", f"Its text is not shown: {file.why}.", class_="soft")])
    wanted = set(range(1, len(file.lines) + 1))
    if len(file.lines) > WHOLE:
        wanted &= {near for line in used for near in range(line - AROUND, line + AROUND + 1)}
    rows: list[Part] = []
    before = 0
    for number in sorted(wanted):
        if number != before + 1:
            rows.append(el("li", "…", class_="soft gap"))
        before = number
        mark = el("span", "decided", class_="mark") if number in used else None
        words = el("code", file.lines[number - 1] or " ")
        rows.append(
            el(
                "li",
                el("span", str(number), class_="no"),
                words,
                mark,
                id=f"p{index}-L{number}",
                class_="used" if number in used else None,
            )
        )
    if not rows:
        rows.append(el("li", "No decision names a line of it.", class_="soft"))
    return join([head, el("ol", rows, class_="source")])


def _provenance(run: Run) -> Html:
    line = run.run
    model, task, clock = line["model"], line["task"], line["clock"]
    pairs: list[tuple[str, Part]] = [
        ("run id", el("code", line["run_id"])),
        ("task", el("code", task["path"]) if task is not None else "none: made from code"),
        ("model", f"{model['provider']} / {model['name']}, {model['execution_path']}"),
        ("seed", str(line["seed"])),
        ("clock", f"{clock['kind']}, started at {clock['start']}"),
        ("journal" if run.end is None else "ledger", el("code", f"SHA-256 {run.digest}")),
    ]
    if run.end is not None:
        again = "tachograph check" if task is not None else "tachograph verify"
        pairs.append(("prove it", el("code", f"{again} {run.name}")))
    parts: list[Part] = [el("h2", "Provenance"), facts(pairs)]
    parts.append(
        _folded(
            "tool",
            [f"{tool['name']}: {tool['effect']}, {tool['file'] or 'made in code'}" for tool in line["tools"]],
        )
    )
    if run.end is not None:
        parts.append(_folded("input", [f"{item['path']} {item['sha256']}" for item in run.end["inputs"]]))
    return el("section", parts, id="provenance", class_="provenance")


def _folded(noun: str, lines: list[str]) -> Html:
    return el(
        "details",
        el("summary", count(len(lines), noun)),
        el("ul", [el("li", words) for words in lines], class_="soft"),
    )
