"""Pages as a browser's parser finds them, held to what a page of ours may hold."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

WORDS = "head title style body header main footer h1 h2 section dl dt dd details"
MAY = {name: set[str]() for name in WORDS.split()} | {
    "html": {"lang"},
    "meta": {"charset", "name", "http-equiv", "content"},
    "nav": {"aria-label"},
    "a": {"href"},
    **{name: {"id"} for name in ("h3", "li")},
    **{name: {"class"} for name in ("p", "div", "span", "ul", "summary")},
}
HREF = re.compile(r"#[\w.%~/-]+|(\.\./\.\./index|runs/[\w.%~-]+/[\w.%~-]+)\.html")


class Page(HTMLParser):
    """What a page holds: its elements in order, its links and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.size, self.text = len(text.encode()), ""
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.said: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert given.keys() <= MAY[tag] and len(given) == len(attrs)
        assert given.get("class", "good") in ("good", "bad", "wait", "text")
        self.tags.append(tag)
        if "href" in given:
            assert HREF.fullmatch(given["href"])
            self.links.append(given["href"])
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "meta":
            self.said[given.get("http-equiv", given.get("name", "charset"))] = given.get("content", "")
        else:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["style"]:
            self.said["style"] = data
            return
        assert all(character == "\n" or character.isprintable() for character in data)
        within = {"head", "header", "main", "footer"}  # landmarks hold all that a reader sees
        assert data.isspace() or within & {*self._open}
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_pi = unknown_decl = handle_comment


def read(path: Path) -> Page:
    """Return a page, which has to be as every page is."""
    page = Page(path.read_text(encoding="utf-8"))
    style = b64encode(sha256(page.said.pop("style").encode()).digest()).decode()
    policy = dict(part.split(" ", 1) for part in page.said.pop("Content-Security-Policy").split("; "))
    assert policy.pop("style-src") == f"'sha256-{style}'"
    assert policy == dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    assert page.said.keys() == {"charset", "generator", "viewport"}
    once = ("html", "title", "style", "h1", "header", "main")
    assert [page.tags.count(tag) for tag in once] == [1] * len(once)
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in zip([0, *levels], levels, strict=False))
    assert len({*page.ids}) == len(page.ids)
    assert {href[1:] for href in page.links if href[0] == "#"} <= {*page.ids}
    return page


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
