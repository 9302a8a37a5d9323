"""`resources`: of every text that an external tool is given, somebody has said what it is.

What an external tool does beside `io` nobody sees, so its arguments are all there is to judge. Its schema says of each
text whether it is a URL, a path or neither, or the policy does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer, join, parse
from ...log.values import Call
from ...schema.places import Place, texts_in
from ...tools.contract import Tool
from ..leaf import Leaf, Leaves, Policy, Question, Rule, Sample
from .arguments import with_value
from .url_allowlist import reached

# what passes at a place of each kind passes at one of these too
_WIDER: Final = {
    "": ("path:write", "path:read", "url", "text", "any"),
    "path:write": ("path:write", "path:read", "text", "any"),
    "path:read": ("path:read", "text", "any"),
    "url": ("url", "text", "any"),
    "text": ("text", "any"),
    "any": ("any",),
}


# a text that passes as nothing but `text` or `any`, and one that passes as `any` alone
_TEXTS: Final = ("plain words", "https://unlisted.test/")


class TextPoint(Struct, frozen=True):
    """A text among the arguments of an external tool.

    Attributes:
        path: Where it stands; `*` for an item of a list.
        kind: What it has to be let through as; "" where anything will do that is judged.
        tool: The tool.
    """

    path: tuple[str, ...]
    kind: str = ""
    tool: str = ""


class Places(Leaf[TextPoint]):
    """What the texts among the arguments of an external tool are.

    Args:
        kinds: `url`, `path:read`, `path:write`, `text` or `any`, by JSON Pointer; `*` stands for any key or item.
    """

    def __init__(self, kinds: Mapping[str, str] | None = None) -> None:
        self.kinds = dict(kinds or {})
        self.places = tuple(Place(tuple(parse(pointer)), kind) for pointer, kind in self.kinds.items())

    def allows(self, point: TextPoint) -> bool:
        return any(place.covers(point.path) and place.kind in _WIDER[point.kind] for place in self.places)

    def entry(self, point: TextPoint) -> str:
        pointer = self._covering(point)
        return "" if pointer is None else f"/{escape_pointer(pointer)}"

    def _covering(self, point: TextPoint) -> str | None:
        pairs = zip(self.kinds, self.places, strict=True)
        return next((pointer for pointer, place in pairs if place.covers(point.path)), None)

    def beyond(self, old: Places) -> Iterator[tuple[str, TextPoint]]:
        for pointer, place in zip(self.kinds, self.places, strict=True):
            point = TextPoint(place.path, place.kind)
            if not old.allows(point):
                yield f"{pointer}: {place.kind}", point

    def larger(self, point: TextPoint) -> Places | None:
        if not point.kind:  # what a text is only a person can say
            return None
        pointer = self._covering(point) or join(point.path)
        held = self.kinds.get(pointer, point.kind)
        least = next(kind for kind in _WIDER[point.kind] if kind in _WIDER[held])
        return Places({**self.kinds, pointer: least})

    def changes(self) -> Iterator[tuple[str, Places]]:
        for pointer, kind in self.kinds.items():
            yield f"{pointer} dropped", Places({key: it for key, it in self.kinds.items() if key != pointer})
            for other in _WIDER[""]:
                if other != kind:
                    yield f"{pointer}: {other}", Places({**self.kinds, pointer: other})
        yield "another place", Places({**self.kinds, "/another": "text"})

    def data(self) -> dict[str, str]:
        return self.kinds


class ResourcesRule(Rule):
    """Judges where the texts of a call of an external tool stand that its schema does not mark."""

    id = "resources"

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Places]]:
        return [(f"/tools/{escape_pointer(tool)}/resources", policy.tool_rules(tool).resources)]

    def concerns(self, tool: Tool) -> bool:
        return tool.acts_beside_io

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> Iterator[TextPoint]:
        if isinstance(question.about, Call) and tool is not None and tool.acts_beside_io:
            for path in dict.fromkeys(texts_in(question.about.arguments)):
                if not any(place.covers(path) for place in tool.marked):
                    yield TextPoint(path, "", tool.name)

    def reason(self, point: TextPoint, leaf: Places, *, allowed: bool) -> str:
        pointer = quote_untrusted(join(point.path))
        if allowed:
            return f"the policy says what the text at {pointer} is"
        line = f"tools: {{{point.tool}: {{resources: {{{pointer}: text}}}}}}"
        return f"nothing says what the text at {pointer} is: add {line}, or url, path:read, path:write or any"

    def questions(self, point: TextPoint, sample: Sample) -> Iterator[Question]:
        urls, paths = reached(sample.policy, sample.tool).entries, sample.policy.mounts.modes
        for text in (*_TEXTS, *[*urls][:1], *(f"{mount}/example.txt" for mount in paths)):
            arguments = with_value(point.path, text)
            if isinstance(arguments, dict):
                yield from sample.with_arguments(arguments)
