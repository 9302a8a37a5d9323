"""Where secrets stand in a text: as they are, behind escapes as of JSON, URLs and HTML, in base64, and in hex."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from .kinds import KNOWN, PASSWORD, RULES, SHORTEST
from .redactor import PLACEHOLDER

Span = tuple[int, int, str]  # where a secret begins and ends, and its kind

# of URLs, of JSON and of languages like it, of Markdown and shells, which escape any sign, and of HTML
_ESCAPE: Final = re.compile(
    r"%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[nrtbf!-/:-@\[-`{-~]"
    r"|&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});"
)
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_ENTITIES: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LEVELS: Final = 2
# in lines, as mails and tools wrap it, or as one word, which hex is too
_BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{60,76}\r?\n[ \t]{0,20})+[A-Za-z0-9+/]{1,76}={0,2}(?=[\r\n\"'\\<]|\Z)"
    r"|[A-Za-z0-9+/_-]{24,}={0,2}"
)
# what stands behind a secret and belongs to its word
_REST_OF_WORD: Final = re.compile(r"(?<=[A-Za-z0-9_])(?:[.~]*[A-Za-z0-9_-])+")
_NAME_OF_PASSWORD: Final = re.compile(r"(?i)(?:pass(?:word|wd|phrase|code|wort)|pwd|\bpw)[\W_\d]{0,3}\Z")
_LONGEST_NAME: Final = 100


def views(text: str, levels: int = _LEVELS) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield a text as it is and without its escapes, each with the place of every character of it in the text.

    Args:
        text: The text.
        levels: How often escapes are taken away: behind those of JSON in JSON stand others.
    """
    places: Sequence[int] = range(len(text) + 1)
    yield text, places
    for _ in range(levels):
        out: list[str] = []
        kept: list[int] = []
        last = 0
        for escape in _ESCAPE.finditer(text):
            out += [text[last : escape.start()], _meant(escape[0])]
            kept += places[last : escape.start() + 1]
            last = escape.end()
        if not last:
            return
        text, places = "".join([*out, text[last:]]), [*kept, *places[last:]]
        yield text, places


def _meant(escape: str) -> str:
    if escape[0] == "&":
        name = escape[1:-1].lower()
        if name in _ENTITIES:
            return _ENTITIES[name]
        code = name.replace("#x", "0x").lstrip("#")
        return chr(min(int(code, 16 if "x" in code else 10), 0x10FFFF))
    if escape[0] == "%" or escape[1] in "ux":
        return chr(int(escape.lstrip("%\\ux"), 16))
    return _CONTROL.get(escape[1], escape[1])


def forms_of(value: str) -> set[str]:
    """Return how a value may be written once escapes are taken away, and as a part of base64."""
    data = value.encode("utf-8", "surrogatepass")
    by_bytes = data.decode("latin-1")  # as a URL escapes it
    # the name of a header comes in lower case
    forms = {value, value.lower(), by_bytes, by_bytes.replace(" ", "+"), data.hex(), data.hex().upper()}
    for offset in range(3):  # of the value in the three bytes of a group
        text = b64encode(bytes(offset) + data).decode()
        own = text[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]  # what no byte around it changes
        forms |= {own, own.replace("+", "-").replace("/", "_")}
    return forms


class Search:
    """Finds secrets of some kinds, and values that are known.

    Args:
        kinds: The kinds.
        known: The values, by a name or by the placeholder that stands for them.
    """

    def __init__(self, kinds: Sequence[str], known: Mapping[str, str]) -> None:
        self._rules = [rule for rule in RULES if rule.kind in kinds]
        self._needles = [(needle, n) for n, rule in enumerate(self._rules) for needle in rule.needles]
        self._hides_passwords = PASSWORD in kinds
        self._names = {form: name for name, value in known.items() for form in forms_of(value)}
        # a value that is known since a placeholder stands for it is of the kind of that
        marks = {name: match[1] for name in known if (match := PLACEHOLDER.fullmatch(name))}
        self._kinds = {form: marks.get(name, KNOWN) for form, name in self._names.items()}
        self.phrases = [form for form in self._names if re.search(r"\s", form)]
        longest_first = sorted(self._names, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def spans(self, text: str, name: str = "") -> list[Span]:
        """Return where secrets stand, in order and apart from each other. A known value is a secret by itself.

        Args:
            text: The text.
            name: What the text stands beside, such as the key of an object.
        """
        before = f"{name[-_LONGEST_NAME:]}=" if name else ""
        size = len(before)
        if self._hides_passwords and _NAME_OF_PASSWORD.search(name) and text.strip():
            found = [(size, size + len(text), PASSWORD)]
        else:
            found = _apart(_in_views(before + text, self._matches), before + text)
        moved = [(max(start, size) - size, end - size, kind) for start, end, kind in found if end > size]
        return _around(_apart(_in_views(text, self._known_in)), moved)

    def name_in(self, data: bytes) -> str | None:
        """Return the name of a known value that encoded data hold in any of its forms, None if they hold none."""
        if not self._names:
            return None
        for view, _ in views(data.decode("utf-8", "replace"), _LEVELS + 1):
            if (match := self._known.search(view)) is not None:
                return self._names[match[0]]
        return None

    def _known_in(self, text: str) -> Iterator[Span]:
        for match in self._known.finditer(text):
            yield *match.span(), self._kinds[match[0]]

    def _matches(self, text: str) -> Iterator[Span]:
        lower = text.lower()
        likely = {n for needle, n in self._needles if needle in lower} if lower else set()
        for rule in (self._rules[n] for n in sorted(likely)):
            for start, end in rule.find(text, lower):
                yield start, end, rule.kind
        # a word of base64 may stand for a text with a secret, as the key in a kube config does
        for word in _BASE64.finditer(text):
            for _, _, kind in self._matches(_decoded(word[0])):
                yield *word.span(), kind


def _decoded(word: str) -> str:
    """Return the text that a word of base64 or hex stands for, "" if it stands for none."""
    digits = "".join(word.split()).rstrip("=")
    as_hex = re.fullmatch(r"(?:0?x)?((?:[0-9A-Fa-f]{2})+)", digits)
    try:
        if as_hex:
            return bytes.fromhex(as_hex[1]).decode()
        return b64decode(digits[: len(digits) - (len(digits) % 4 == 1)] + "==", b"-_").decode()
    except ValueError:
        return ""


def _around(known: list[Span], found: list[Span]) -> list[Span]:
    """Return known values, and of what the rules found the parts around them that are long enough for a secret."""
    out = list(known)
    starts, ends = [span[0] for span in known], [span[1] for span in known]
    for start, end, kind in found:
        inside = known[bisect_right(ends, start) : bisect_left(starts, end)]
        edges = [start, *(edge for span in inside for edge in span[:2]), end]
        for begin, finish in zip(edges[::2], edges[1::2], strict=True):
            if finish - begin >= (SHORTEST if inside else 1):
                out.append((begin, finish, kind))
    return sorted(out)


def _in_views(text: str, find: Callable[[str], Iterator[Span]]) -> Iterator[Span]:
    for view, places in views(text):
        for start, end, kind in find(view):
            yield places[start], places[end], kind


def _apart(spans: Iterable[Span], text: str = "") -> list[Span]:
    """Return spans in order, in a text up to the end of their last words; those that overlap become one."""
    out: list[Span] = []
    reached = 0
    for start, end, kind in sorted(spans, key=lambda span: span[0]):
        if end <= max(start, reached):
            continue
        rest = _REST_OF_WORD.match(text, end)
        if start < reached:
            start, _, kind = out.pop()
        reached = rest.end() if rest else end
        out.append((start, reached, kind))
    return out
