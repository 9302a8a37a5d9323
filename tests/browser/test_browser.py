"""Pages and site in a real browser: mouse, keys, search, light, dark, narrow, without scripts, and axe-core.

Each page fails its test that writes to the console, or asks for anything beyond its own folder.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.views.reading import lines_of

PAGES = ("several", "retries", "person", "two", "hostile", "under_way", "short", "site/index")
LOOKS = {"light": ("light", 1100), "dark": ("dark", 1100), "narrow": ("light", 390)}
PLACES = ("timeline", "budgets", "policy", "provenance")
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(name: str, look: str, opened: Callable[..., Any], folder: Path, axe: str) -> None:
    scheme, width = LOOKS[look]
    page = opened(scheme=scheme, width=width).goto(folder / f"{name}.html")
    if name != "short":
        page.evaluate("document.querySelectorAll('main details').forEach((part) => { part.open = true; })")
    page.evaluate(axe)
    found = page.evaluate("(tags) => axe.run({runOnly: tags, resultTypes: ['violations']})", list(TAGS))
    assert [(bad["id"], bad["nodes"][0]["html"][:200]) for bad in found["violations"]] == []
    assert len(found["passes"]) > 15
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, "the page scrolls sideways"


def test_the_help_passes_axe(opened: Callable[..., Any], folder: Path, axe: str) -> None:
    for scheme in ("light", "dark"):
        page = opened(scheme=scheme).goto(folder / "several.html")
        page.keyboard.press("?")
        page.evaluate(axe)
        found = page.evaluate("(tags) => axe.run({runOnly: tags})", list(TAGS))
        assert [bad["id"] for bad in found["violations"]] == []


def _focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.closest('details')?.id || document.activeElement.id"))


def _open_steps(page: Any) -> list[str]:
    return list(page.evaluate("[...document.querySelectorAll('details.step[open]')].map((step) => step.id)"))


def _shown(page: Any) -> list[str]:
    return list(
        page.evaluate(
            "[...document.querySelectorAll('details.step')].filter((s) => s.offsetParent).map((s) => s.id)"
        )
    )


def test_steps_by_keyboard(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "several.html")
    assert _open_steps(page) == ["step-1", "step-2", "step-3"]
    for key, focused in (("j", "step-1"), ("j", "step-2"), ("j", "step-3"), ("j", "step-3"), ("k", "step-2")):
        page.keyboard.press(key)
        assert _focused(page) == focused, key
    page.keyboard.press("ArrowDown")
    assert _focused(page) == "step-3"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    assert _open_steps(page) == ["step-1", "step-2"]
    page.keyboard.press("o")
    assert _open_steps(page) == []
    page.keyboard.press("o")
    assert len(_open_steps(page)) == 3


def test_everything_is_reached_by_tab(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "several.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the steps"
    box = page.evaluate(
        "(({x, y, width}) => [x >= 0, y >= 0, width > 40])(document.activeElement.getBoundingClientRect())"
    )
    assert box == [True, True, True]
    page.keyboard.press("Enter")
    met = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        met.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.textContent.trim().slice(0, 12)"
            )
        )
    assert {"search", "all", "policy/v1.ya", "tc_1_1", "agent_step"} <= met


def test_search_shows_what_holds_all_words(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "several.html")
    page.keyboard.press("/")
    assert _focused(page) == "search"
    page.keyboard.type("NEWS.example url_allowlist")
    assert _shown(page) == ["step-1"] and page.inner_text("#found") == "1 of 3 steps"
    page.keyboard.type(" nosuchword")
    assert _shown(page) == [] and page.inner_text("#found") == "0 of 3 steps"
    page.keyboard.press("Escape")
    assert len(_shown(page)) == 3 and page.inner_text("#found") == "3 steps"
    assert page.input_value("#search") == ""


def test_a_link_leads_to_a_step_and_to_a_call(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "long.html", "#tc_700_0")
    assert _open_steps(page) == ["step-700"]
    assert page.evaluate("document.getElementById('tc_700_0').getBoundingClientRect().top < innerHeight")
    page.evaluate("location.hash = '#step-3'")
    page.wait_for_selector("#step-3[open]")
    page.goto(f"file://{folder}/several.html#p0-L6")
    assert page.evaluate("document.getElementById('p0-L6').getBoundingClientRect().top < innerHeight")
    page.goto(f"file://{folder}/several.html#%E0%A4%A")
    assert len(_open_steps(page)) == 3


@pytest.mark.parametrize("width", [1100, 390])
def test_links_of_a_long_page_land_where_they_point(
    width: int, opened: Callable[..., Any], folder: Path
) -> None:
    """What a link leads to is at the top of the window, below the search, or as far up as the page goes."""
    frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    for place in (*PLACES, "step-3", "step-998", "tc_500_0"):
        page = opened(width=width, motion="no-preference").goto(folder / "long.html")
        if place in PLACES:
            page.click(f"nav a[href='#{place}']")
        else:
            page.goto(f"file://{folder}/long.html#{place}")
        page.wait_for_selector(".group > noscript", state="detached")
        page.evaluate(frames)
        top = page.evaluate(f"document.getElementById('{place}').getBoundingClientRect().top")
        left = page.evaluate("document.documentElement.scrollHeight - scrollY - innerHeight")
        assert 0 <= top < 80 or (left < 2 and 0 <= top < 900), (place, top, left)


def test_a_long_page_is_whole_in_a_moment(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "long.html")
    page.wait_for_selector(".group > noscript", state="detached")
    assert page.evaluate("document.querySelectorAll('.group > details.step').length") == 1000
    page.keyboard.press("/")
    page.keyboard.type("page 987.")
    assert _shown(page) == ["step-987"]
    page.click("#step-987 > summary")
    assert "transient failure" in page.inner_text("#step-987")


def test_light_and_dark_by_choice(opened: Callable[..., Any], folder: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    page = opened(scheme="light").goto(folder / "several.html")
    light = page.evaluate(paper)
    page.click("#theme")
    dark = page.evaluate(paper)
    assert light != dark
    page.reload()
    assert page.evaluate(paper) == dark
    page.keyboard.press("t")
    assert page.evaluate(paper) == light
    assert opened(scheme="dark").goto(folder / "several.html").evaluate(paper) == dark


def test_keys_of_one_letter_can_be_turned_off(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "several.html")
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.uncheck("#single")
    page.keyboard.press("Escape")
    assert not page.is_visible("#help")
    page.keyboard.press("j")
    assert _focused(page) != "step-1"
    page.click("#keys")
    page.check("#single")
    page.click("#close")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    assert _focused(page) == "step-1"


def test_all_is_told_without_scripts(opened: Callable[..., Any], folder: Path) -> None:
    page = opened(scripts=False).goto(folder / "long.html")
    assert page.locator("details.step").count() == 1000
    page.locator("#step-950 > summary").click()
    assert "I look at page 950." in page.locator("#step-950").inner_text()
    assert not page.locator("#search").is_visible() and not page.locator("#theme").is_visible()


def test_nothing_hostile_runs(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "hostile.html")
    page.keyboard.press("/")
    page.keyboard.type("<script>")
    page.keyboard.press("Escape")
    count = "document.querySelectorAll('main :is(script, img, iframe, object, embed, form, [onclick], [style])').length"
    assert page.evaluate(count) == 0


def _names(page: Any) -> list[str]:
    rows = "[...document.querySelectorAll('#runs tbody tr:not([hidden]) a')].map((a) => a.textContent)"
    return list(page.evaluate(rows))


def _answered_after_a_denial(name: str) -> bool:
    end = lines_of(name)[-1]
    return bool(end["terminal_reason"] == "final_answer" and end["totals"]["denials"])


def _tokens(name: str) -> int:
    totals = lines_of(name)[-1]["totals"]
    return int(totals["input_tokens"]) + int(totals["output_tokens"])


def test_the_index_filters_searches_and_sorts(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "site/index.html")
    everything = _names(page)
    assert len(everything) > 25 and everything == sorted(everything)
    page.select_option("#by-kind", "failure_modes")
    assert _names(page) == [name for name in everything if name.startswith("failure_modes/")]
    page.select_option("#by-mode", "timeout")
    assert _names(page) == ["failure_modes/timeout"] and page.inner_text("#found").startswith("1 of ")
    page.select_option("#by-kind", "")
    page.select_option("#by-mode", "")
    page.select_option("#by-ending", "final_answer")
    page.check("#by-denials")
    assert _names(page) == [name for name in everything if _answered_after_a_denial(name)]
    page.uncheck("#by-denials")
    page.select_option("#by-ending", "")
    page.fill("#search", "forbidden tool")
    assert len(_names(page)) == 2
    page.fill("#search", "")
    page.click("#runs thead button >> text=tokens")
    assert _tokens(_names(page)[0]) == max(map(_tokens, everything))
    assert page.get_attribute("#runs th[aria-sort]", "aria-sort") == "descending"
    page.click("#runs thead button >> text=tokens")
    assert _tokens(_names(page)[-1]) == max(map(_tokens, everything))
    page.click("#runs thead button >> text=run")
    assert _names(page)[0] == "canonical/v1" and sorted(_names(page)) == everything
    page.click("#runs thead button >> text=run")
    assert _names(page)[-1] == "canonical/v1"


def test_through_the_site_by_keyboard_and_mouse(opened: Callable[..., Any], folder: Path) -> None:
    page = opened().goto(folder / "site/index.html")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/canonical--v1.html")
    page.click("text=All runs")
    page.wait_for_url("**/site/index.html")
    page.click("text=pg1_off_allowlist_url")
    page.wait_for_url("**/policy_gates--pg1_off_allowlist_url.html")
    page.click("a >> text=policy/v1.yaml:6")
    assert page.evaluate("location.hash") == "#p0-L6"


# when the largest part of what is seen was painted, which is how browsers tell that a page is open; and its load
OPENED = """() => new Promise((done) => {
  const [one] = performance.getEntriesByType('navigation');
  new PerformanceObserver((list) => done([list.getEntries().at(-1).startTime, one.loadEventEnd]))
    .observe({type: 'largest-contentful-paint', buffered: true});
})"""


def test_a_thousand_steps_open_in_less_than_twice_the_time_of_fifty(browser: Any, folder: Path) -> None:
    """In pairs, so that both pages see the same machine."""
    took: dict[str, list[list[float]]] = {"short": [], "long": []}
    for number in range(12):
        for name, kept in took.items():
            context = browser.new_context(viewport={"width": 1100, "height": 900})
            page = context.new_page()
            page.goto(f"file://{folder}/{name}.html")
            times = page.evaluate(OPENED)
            if number:  # the first of each warms the browser
                kept.append(times)
            context.close()
    short, long = ([statistics.median(column) for column in zip(*took[name], strict=True)] for name in took)
    ratios = [round(b / a, 2) for a, b in zip(short, long, strict=True)]
    print(f"1000 steps against 50: painted {ratios[0]}, all read {ratios[1]} (50: {short[0]:.0f} ms)")
    assert ratios[0] < 2, (short, long)


# (file, page, look, height, what to do before)
PICTURES = (
    ("page-light", "several", "light", 1000, ""),
    ("page-dark", "retries", "dark", 960, "document.querySelector('#timeline').scrollIntoView()"),
    ("page-narrow", "several", "narrow", 844, "document.querySelector('#step-1').scrollIntoView()"),
    ("site", "site/index", "light", 900, ""),
)


@pytest.mark.skipif(
    "not os.environ.get('TACHOGRAPH_PICTURES')", reason="TACHOGRAPH_PICTURES names no folder for pictures"
)
@pytest.mark.parametrize(("file", "name", "look", "height", "before"), PICTURES, ids=[p[0] for p in PICTURES])
def test_pictures(
    file: str, name: str, look: str, height: int, before: str, opened: Callable[..., Any], folder: Path
) -> None:
    scheme, width = LOOKS[look]
    page = opened(scheme=scheme, width=width, height=height).goto(folder / f"{name}.html")
    if before:
        page.evaluate(before)
    target = Path(os.environ["TACHOGRAPH_PICTURES"]) / f"{file}.png"
    page.screenshot(path=str(target))
    assert target.stat().st_size < 150_000
