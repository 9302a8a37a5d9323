"""A real browser without a window, that may open files of the test and nothing else."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tachograph.views.compare_page import compare_page, compared
from tachograph.views.model import Run, run_of
from tachograph.views.page import run_page
from tachograph.views.site import write_site
from tests.support import ROOT
from tests.views.reading import hostile_texts, lines_of, retold

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# one folder a kind of place: by hand, by `make browser`
AXE = (os.environ.get("TACHOGRAPH_AXE"), ROOT / ".tachograph/browser/node_modules/axe-core/axe.min.js")


def run_from(name: str) -> Run:
    return run_of(ROOT / "runs" / name)


class Opened:
    """A page that is open: `troubles` are what its console said, and requests that left the folder."""

    def __init__(self, context: Any, folder: Path) -> None:
        self.troubles: list[str] = []
        self._allowed = f"file://{folder}/"
        self.page = context.new_page()
        self.page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("request", self._asked)
        self.page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self._allowed, "data:image/svg+xml,")):
            self.troubles.append(f"request: {request.url[:200]}")

    def goto(self, path: Path, place: str = "") -> Any:
        self.page.goto(f"file://{path}{place}")
        return self.page


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; skips where there is none, or nothing to drive it."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium is installed: `apt-get install chromium`, then `make browser`")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed: `make browser` installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # a sandbox of its own needs more rights than a container gives; it opens our own files only
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Callable[..., Opened]]:
    """Opens a page in a context of its own; no page may say or ask for anything in the end."""
    contexts: list[Any] = []
    pages: list[Opened] = []

    def new(
        *,
        scheme: str = "light",
        width: int = 1100,
        scripts: bool = True,
        height: int = 900,
        motion: str = "reduce",
    ) -> Opened:
        contexts.append(
            browser.new_context(
                color_scheme=scheme,
                viewport={"width": width, "height": height},
                java_script_enabled=scripts,
                reduced_motion=motion,
            )
        )
        contexts[-1].set_default_timeout(10_000)
        pages.append(Opened(contexts[-1], folder))
        return pages[-1]

    yield new
    for context in contexts:
        context.close()
    assert [trouble for page in pages for trouble in page.troubles] == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core; skips where it is not at hand."""
    for place in AXE:
        if place and Path(place).is_file():
            return Path(place).read_text(encoding="utf-8")
    pytest.skip("axe-core is not at hand: `make browser` fetches it, or TACHOGRAPH_AXE names axe.min.js")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site over the recorded runs in `site/`, and pages beside it: one, two, hostile, under way."""
    from tests.faults.kept import Case, Disk

    place = tmp_path_factory.mktemp("browser")
    write_site(ROOT / "runs", place / "site")
    texts = iter([*hostile_texts()] * 20)
    from tachograph.views import model

    lines = retold(lines_of("policy_gates/one_of_several_denied"), lambda _: next(texts))
    case = Case(place / "kept", (["look", "put"], ["pay", "look!"], ["look"]))
    assert case.begin(Disk(20)) is None
    pages = {
        "several": run_page(run_from("policy_gates/one_of_several_denied")),
        "retries": run_page(run_from("failure_modes/tool_call_failure")),
        "person": run_page(run_from("policy_gates/approval_given")),
        "two": compare_page(
            compared(run_from("policy_gates/approval_given"), run_from("policy_gates/approval_refused"))
        ),
        "hostile": run_page(model._run("hostile", lines, "0" * 64, [], ROOT)),
        "under_way": run_page(run_of(case.partial)),
        "short": run_page(long_run(50)),
        "long": run_page(long_run(1000)),
    }
    for name, text in pages.items():
        (place / f"{name}.html").write_text(text, encoding="utf-8", newline="")
    return place


def long_run(steps: int) -> Run:
    """A run of so many steps, each with a retried call and a page of text for a result."""
    import json

    from tachograph.views import model

    lines = lines_of("failure_modes/tool_call_failure")
    first = json.dumps(lines[1])
    made = []
    for number in range(1, steps + 1):
        line = json.loads(first.replace("tc_1_0", f"tc_{number}_0"))
        line["step_index"] = number
        line["llm_output"]["text"] = f"I look at page {number}."
        line["stamps"] = {
            at: [time + (number - 1) * 6_000_000_000 for time in pair] for at, pair in line["stamps"].items()
        }
        made.append(line)
    lines[-1]["stamp"] = steps * 6_000_000_000
    return model._run("long", [lines[0], *made, lines[-1]], "0" * 64, [], ROOT)
