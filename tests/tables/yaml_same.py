"""The shipped policy said in other words: in any order, in other quotes, with comments, cut in two."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from tests.tables.yaml_texts import FULL, KEYS, LISTS, SHIPPED, TEXTS
from tests.tables.yaml_values import DATA


def _shuffled(data: Any, draw: random.Random) -> Any:
    if isinstance(data, dict):
        return {key: _shuffled(data[key], draw) for key in draw.sample(sorted(data), len(data))}
    return data


def _orders() -> Iterator[str]:
    """Keys in any order, in block and flow style and as JSON."""
    draw = random.Random(7)
    for i in range(20):
        data = _shuffled(DATA, draw)
        for flow in (True, False, None):
            yield yaml.safe_dump(
                data, sort_keys=False, default_flow_style=flow, width=20 + 9 * i, indent=2 + i % 4
            )
        yield json.dumps(data, indent=i % 5 or None)


def _quotes() -> Iterator[str]:
    """Each text and each key in other quotes, or as a block."""
    for place in (*TEXTS, *KEYS):
        text = place.value
        forms = [
            f'"{text}"',
            f"'{text}'",
            '"' + "".join(f"\\x{ord(c):02x}" for c in text) + '"',
            f'"\\u{ord(text[0]):04x}{text[1:]}"',
        ]
        if place.role == "value" and FULL[place.start - 2 : place.end + 1] == f": {text}\n":
            indent = " " * 6
            forms += [
                f"|-\n{indent}{text}",
                f">-\n{indent}{text}",
                f"&here {text}",
            ]
        yield from (FULL[: place.start] + form + FULL[place.end :] for form in forms)


def _layouts() -> Iterator[str]:
    """Comments, blank lines, line ends, markers and aliases."""
    lines = FULL.splitlines()
    for i in range(len(lines)):
        for more in (
            " # why",
            " # \u00e9 \u2603 \U0001f600: [ { ' \" %",
            "   ",
            "\n",
            "\n# on_deny: inform",
            "\n\n      # far",
        ):
            yield "\n".join([*lines[:i], lines[i] + more, *lines[i + 1 :]]) + "\n"
    yield FULL.replace("\n", "\r\n")
    yield FULL.rstrip("\n")
    yield from (
        f"{head}{FULL}{tail}"
        for head in ("", "---\n", "# c\n---\n", "\n\n--- # c\n")
        for tail in ("", "...\n", "...\n# c\n")
    )
    yield FULL.replace("max_repeats: 3", "max_repeats: &n 3").replace("max_retries: 3", "max_retries: *n")
    yield FULL + "#" * ((1 << 20) - len(FULL.encode()))
    for place in LISTS:
        indent = " " * (place.column if place.block else 8)
        if not place.block:
            yield (
                FULL[: place.start]
                + "".join(f"\n{indent}- {item}" for item in place.value)
                + FULL[place.end :]
            )
            yield (
                FULL[: place.start]
                + "[\n"
                + ",\n".join(f"{indent}{item}" for item in place.value)
                + f",\n{indent}]"
                + FULL[place.end :]
            )


SAME: dict[str, Callable[[], Iterator[str]]] = {"orders": _orders, "quotes": _quotes, "layouts": _layouts}


def splits() -> Iterator[tuple[str, str]]:
    """The shipped policy cut in two, a file and an overlay, with keys of one mapping on either side."""
    whole = yaml.safe_load(SHIPPED)
    draw = random.Random(11)
    for _ in range(80):
        base: dict[str, Any] = {"schema": whole["schema"]}
        over: dict[str, Any] = {}
        for name, section in whole.items():
            if isinstance(section, dict):
                for key, value in section.items():
                    draw.choice((base, over)).setdefault(name, {})[key] = value
            else:
                draw.choice((base, over))[name] = section
                if name in over and isinstance(section, list):
                    base[name] = ["replaced"]
        yield yaml.safe_dump(base, sort_keys=False), yaml.safe_dump(over, sort_keys=False)
