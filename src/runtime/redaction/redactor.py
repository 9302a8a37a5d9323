"""Puts placeholders in the place of secrets, and secrets in the place of placeholders.

A placeholder is `<secret:KIND:` with six hex digits of a keyed hash of the value, and `>`. It has no number, so it is
the same in every branch, child and turn and after a resume, and nobody who lacks the key can make one. Text that looks
like a placeholder and was not given out becomes `<secret::KIND:...>`, which is none.
"""

from __future__ import annotations

import copy
import hmac
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from ...fail.errors import InputError
from ..formats.strict_json import map_texts

if TYPE_CHECKING:
    from .search import Search

PLACEHOLDER: Final = re.compile(r"<secret:([a-z_]+):[0-9a-f]{6}>")

_HARMLESS: Final = 4  # so few characters hold no secret: `a@b.c` is the shortest one

T = TypeVar("T")
# what placeholders stand for: None where that is not known, "" where it is two values, which nobody is given then
Values = dict[str, str | None]


def scripted_key(run_id: str) -> bytes:
    """Return the key of a scripted run. It is not a secret, and protects nothing but invented values."""
    return sha256(f"redaction of the scripted run {run_id}".encode()).digest()


def placeholders(data: Any) -> list[tuple[str, str]]:
    """Return (placeholder, kind) of all that look like one in the strings of JSON data, keys included, each once."""
    found: dict[str, str] = {}

    def look(text: str, name: str) -> str:
        found.update((match[0], match[1]) for match in PLACEHOLDER.finditer(text))
        return text

    map_texts(data, look)
    return list(found.items())


class Redactor:
    """Redacts what enters one run.

    Args:
        kinds: The kinds of secrets to look for, of `KINDS`.
        known: Values that are known by their very text, by what messages call them.
        key: What placeholders are made with.

    Attributes:
        is_empty: Whether it looks for nothing.
        given_out: What the placeholders that were given out stand for.
        is_key_gone: Whether the key is another one than that of the record from which a run is made again.
        recorded: Texts with placeholders, by what they are without the hashes, each with the text that it is here.

    Raises:
        InputError: There is no such kind, or a value is too short to be told from ordinary text.
    """

    def __init__(self, kinds: Sequence[str], known: Mapping[str, str], key: bytes) -> None:
        self._key, self._kinds, self.is_key_gone = key, kinds, False
        self.recorded: dict[str, dict[str, str | None]] = {}
        self._known = {name: value.strip() for name, value in known.items()}
        self.given_out: Values = {}
        self.is_empty = not kinds and not known
        if self.is_empty:
            return
        from .kinds import KINDS, KNOWN, SHORTEST  # slow to import, and most runs look for nothing

        for kind in {*kinds}.difference(KINDS):
            raise InputError(f"there is no kind of secrets {kind!a}", remedy=f"choose of {', '.join(KINDS)}")
        for name in (name for name, value in self._known.items() if len(value) < SHORTEST):
            wrong = f"the secret {name} has fewer than {SHORTEST} characters"
            raise InputError(wrong, remedy="leave it out: it cannot be told from ordinary text")
        for value in self._known.values():
            self._placeholder(KNOWN, value, self.given_out)

    @cached_property
    def search(self) -> Search:
        """What finds secrets."""
        from .search import Search

        return Search(self._kinds, self._known)

    def text(self, text: str) -> str:
        """Return text with each secret replaced. To do it twice changes nothing."""
        return self.data(text)  # type: ignore[no-any-return]

    def data(self, data: Any) -> Any:
        """Return JSON data with all strings redacted, keys too. A value is judged with its key in view."""
        if self.is_empty:
            return data
        met: Values = {}

        def hidden(text: str, name: str) -> str:
            return self._as_recorded(self.hide(text, name, self.given_out, met))

        redacted = map_texts(data, hidden)
        # given out once all is done, so that the order of the strings does not matter
        for placeholder, value in met.items():
            _keep(self.given_out, placeholder, value)
        return redacted

    def struct(self, value: T) -> T:
        """Return a msgspec struct with all strings of it redacted; the same one if it holds no secret."""
        if self.is_empty:
            return value
        plain = msgspec.to_builtins(value)
        redacted = self.data(plain)
        return value if redacted == plain else msgspec.convert(redacted, type(value))

    def reveal(self, data: Any, kinds: Collection[str]) -> Any:
        """Return JSON data with values in the place of the placeholders of some kinds; what is unknown stays."""
        if not kinds:
            return data

        def value_of(match: re.Match[str]) -> str:
            return (match[1] in kinds and self.given_out.get(match[0])) or match[0]

        return map_texts(data, lambda text, name: PLACEHOLDER.sub(value_of, text))

    def knowing(self, data: Any, kinds: Collection[str]) -> Redactor:
        """Return one that also knows by their very text the values that `reveal` puts into JSON data.

        A tool may give back what it was given, where nothing around it tells that it is a secret.
        """
        marks = [mark for mark, kind in placeholders(data) if kind in kinds] if kinds else []
        if not marks:
            return self
        from .kinds import SHORTEST

        values = {mark: value for mark in marks if len(value := self.given_out.get(mark) or "") >= SHORTEST}
        other = copy.copy(self)
        other._known = {**self._known, **values}
        other.__dict__.pop("search", None)
        return other

    def unknown(self, data: Any) -> list[str]:
        """Return the placeholders in JSON data of which this process does not know what they stand for."""
        return [placeholder for placeholder, _ in placeholders(data) if not self.given_out.get(placeholder)]

    def admit(self, recorded: bytes) -> None:
        """Take the placeholders in a recorded line as given out, which an earlier process did; it tells no values."""
        for match in PLACEHOLDER.finditer(recorded.decode()):
            self.given_out.setdefault(match[0], None)

    def recall(self, recorded: Iterable[bytes]) -> None:
        """Give texts the placeholders that they have in recorded JSON, where the key is gone.

        What the code of a run says itself, such as instructions, would have others without it. What comes once the run
        is live has those of the new key.
        """

        def note(text: str, name: str) -> str:
            if bare := _bare(text):
                self.recorded.setdefault(bare, {})[text] = None
            return text

        for line in recorded if self.is_key_gone else ():
            map_texts(msgspec.json.decode(line), note)

    def _as_recorded(self, text: str) -> str:
        same = self.recorded.get(_bare(text), {}) if self.recorded else {}
        if not same or text in same:
            return text
        # several that differ in their secrets alone are heard in the order of the record
        found = next((it for own in (text, None) for it in same if same[it] == own), text)
        same[found] = text
        return found

    def holds(self, data: bytes) -> str | None:
        """Return the name of a known value that encoded data hold, escaped or in base64 too; None if they hold none."""
        return None if self.is_empty else self.search.name_in(data)

    def hide(self, text: str, name: str, given_out: Collection[str], met: Values) -> str:
        """Return text with each secret replaced, without giving out a placeholder.

        Args:
            text: The text.
            name: What it stands beside, such as the key of an object; "" for nothing.
            given_out: The placeholders that may stand in it.
            met: Is told what the new placeholders stand for.
        """
        if self.is_empty:
            return text
        out, begin = [], 0
        for match in PLACEHOLDER.finditer(text):
            if match[0] in given_out:
                out += [self._hidden(text[begin : match.start()], name, met), match[0]]
                begin = match.end()
        return "".join([*out, self._hidden(text[begin:], name, met)])

    def _hidden(self, text: str, name: str, met: Values) -> str:
        escaped = PLACEHOLDER.sub(lambda match: match[0].replace(":", "::", 1), text)
        out: list[str] = []
        # what is left beside secrets is searched again, as if it stood alone: so nothing is found the second time
        todo = [(escaped, False)]
        while todo:
            part, is_done = todo.pop()
            spans = [] if is_done or not (name or part[_HARMLESS:]) else self.search.spans(part, name)
            if not spans:
                out.append(part)
                continue
            parts, begin = [], 0
            for start, end, kind in spans:
                placeholder = self._placeholder(kind, part[start:end], met)
                parts += [(part[begin:start], False), (placeholder, True)]
                begin = end
            todo += [(part[begin:], False), *reversed(parts)]
        return "".join(out)

    def _placeholder(self, kind: str, value: str, met: Values) -> str:
        digest = hmac.new(self._key, value.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
        placeholder = f"<secret:{kind}:{digest[:6]}>"
        _keep(met, placeholder, value)
        return placeholder


def _bare(text: str) -> str:
    """Return a text with the kinds alone of its placeholders, "" for one without."""
    bare, number = PLACEHOLDER.subn(r"<secret:\1>", text)
    return bare if number else ""


def _keep(values: Values, placeholder: str, value: str | None) -> None:
    held = values.get(placeholder)
    values[placeholder] = value if held is None or held == value else ""
