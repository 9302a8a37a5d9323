"""Pages read back: their elements, and runs whose every text is another's."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tachograph.runtime.formats.invisible_chars import HIDDEN
from tests.support import ROOT
from tests.tables.output_texts import TEXTS

Line = dict[str, Any]

VOID = frozenset("meta link input br".split())
ALLOWED = frozenset(
    "html head meta title link style script body header main footer nav section details summary noscript dialog "
    "h1 h2 h3 h4 p a b i span div ul ol li dl dt dd pre code kbd table caption thead tbody tr th td figure "
    "figcaption svg path rect line label input select option button".split()
)
ATTRIBUTES = frozenset(
    "lang charset name content http-equiv rel href class id role scope type value for open checked tabindex "
    "aria-label aria-labelledby aria-hidden aria-haspopup autocomplete spellcheck viewbox preserveaspectratio d x y "
    "x1 x2 y1 y2 width height data-label data-value data-kind data-ending data-mode data-denials".split()
)
ADDRESS = re.compile(r"#[^\s]*|\.\./index\.html|runs/[a-z0-9_-]+\.html|data:image/svg\+xml,[^\"]*")


class Page(HTMLParser):
    """A page as its elements in order, each with its attributes; fails where tags do not pair."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str]]] = []
        self.words: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append((self._open[-1] if self._open else "", data))

    def handle_comment(self, data: str) -> None:
        assert data == " made by tachograph: a page of recorded runs "

    @property
    def text(self) -> str:
        return "".join(words for tag, words in self.words if tag not in ("style", "script"))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...], str]]:
        """What of it no text of a run may change."""
        return [(tag, tuple(attrs), attrs.get("class", "")) for tag, attrs in self.found]


def must_be_sound(text: str) -> Page:
    """What every page of ours satisfies, whatever its runs hold."""
    page = Page(text)
    assert text.startswith("<!doctype html>\n<!-- made by tachograph")
    assert {tag for tag, _ in page.found} <= ALLOWED
    assert {name for _, attributes in page.found for name in attributes} <= ATTRIBUTES
    for tag, attributes in page.found:
        if "href" in attributes:
            assert ADDRESS.fullmatch(attributes["href"]), attributes
            assert tag in ("a", "link")
    unseen = HIDDEN.sub(lambda met: "" if met[0] in "\n\t" else "?", text)
    assert unseen.count("?") == text.count("?"), "characters that nobody sees"
    assert page.all("html") == [{"lang": "en"}] and len(page.all("title")) == 1
    _guarded(page, text)
    _headed(page)
    return page


def _guarded(page: Page, text: str) -> None:
    """The CSP of a page lets its own style and scripts through, and nothing else."""
    rules = next(
        meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    )
    inline = {
        tag: [
            f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
            for source in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        ]
        for tag in ("style", "script")
    }
    assert rules == (
        f"default-src 'none'; style-src {' '.join(inline['style'])}; script-src {' '.join(inline['script'])}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _headed(page: Page) -> None:
    levels = [int(tag[1]) for tag, attributes in page.found if re.fullmatch("h[1-6]", tag)]
    at = next(number for number, level in enumerate(levels) if level == 1)
    assert at == 0 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels)), levels


def must_lead_somewhere(page: Page) -> None:
    """Every link within a page has a place there, and no place has two elements."""
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for link in page.all("a"):
        if link["href"].startswith("#"):
            assert link["href"][1:] in ids, link
    for label in page.all("label"):
        assert "for" not in label or label["for"] in ids
    for _, attributes in page.found:
        assert attributes.get("aria-labelledby") in (None, *ids)


# ---- runs with other texts -----------------------------------------------------------------------------------


def lines_of(run: str) -> list[Line]:
    text = (ROOT / "runs" / run / "state.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


# words of the format itself: what a page goes by
_OURS = frozenset(
    "type decision phase position id outcome status at start prev sha256 digest tools answer kind schema".split()
)


def _key(text: str) -> str:
    """Return a text as a key: characters beyond U+FFFF are in no key of a ledger."""
    return "".join(character if character <= "\uffff" else "\ufffd" for character in text)


def retold(value: Any, say: Callable[[str], str], key: str = "") -> Any:
    """A ledger with other texts: every string, and every key of arguments and results."""
    if isinstance(value, str):
        return value if key in _OURS else say(value)
    if isinstance(value, list):
        return [retold(item, say, key) for item in value]
    if isinstance(value, dict):
        free = key in ("arguments", "result", "facts", "told")
        return {
            f"{_key(say(name))}{number}" if free else name: retold(item, say, "" if free else name)
            for number, (name, item) in enumerate(value.items())
        }
    return value


def hostile_texts() -> Iterator[str]:
    for make in TEXTS.values():
        yield from make()


def harmless(text: str) -> str:
    """A text of the same shape that says nothing: lines as long, no character but x."""
    return re.sub(r"[^\n]", "x", text)


def folder_of(lines: list[Line], folder: Path) -> Path:
    """The lines as a run in a folder, chained anew."""
    from tachograph.runtime.journal.ledger import Ledger

    folder.mkdir(parents=True)
    ledger = Ledger()
    data = "".join(f"{ledger.append(line)}\n" for line in lines)
    (folder / "state.jsonl").write_text(data, encoding="utf-8", newline="")
    return folder
