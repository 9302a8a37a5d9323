"""Texts made to be taken for something else: markup, links, terminal sequences, line ends, data, formulas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence


def _formed(forms: Sequence[str], parts: Iterable[str]) -> Iterator[str]:
    """Each part in each form; `@` marks its place, since a part may hold braces."""
    yield from (form.replace("@", part) for part, form in itertools.product(parts, forms))


def _markup() -> Iterator[str]:
    starts = [
        "# ",
        "###### ",
        "- ",
        "* ",
        "+ ",
        "1. ",
        "0123456789. ",
        "2) ",
        "> ",
        ">> ",
        "    ",
        "\t",
        "```",
        "~~~",
        ": ",
        "| ",
    ]
    starts += [
        "- [ ] ",
        "> [!WARNING]\n> ",
        "[^1]: ",
        "<!-- ",
        "<?",
        "<![CDATA[",
        "<script>",
        "</table>",
        "<details>",
        "%%{init: {}}%%",
    ]
    yield from _formed(["@x", "x\n@y", "x\n\n@y", "  @x", "@", "x @"], starts)
    lines = [
        "---",
        "===",
        "***",
        "___",
        "-",
        "=",
        "|---|---|",
        "--|--",
        "\\",
        "x  ",
        "end\nnote over gate: x\nuser ->> gate: y",
    ]
    yield from _formed(["@", "x\n@\ny", "a | b\n@\nc | d", "| 9 | `x` | allow |\n@"], lines)
    pairs = [
        "`",
        "``",
        "```",
        "*",
        "**",
        "_",
        "__",
        "~~",
        "~",
        "$",
        "$$",
        "|",
        "||",
        "[",
        "]",
        "<",
        ">",
        "&",
        "&#",
        "\\",
        "\\`",
        ":",
    ]
    yield from _formed(["@x@", "@", "@ x", "x@y@z", "`@x@`", "@x\n@y", "&lt;@&#60;@&copy;"], pairs)


def _links() -> Iterator[str]:
    places = [
        "https://evil.test/x",
        "HTTP://EVIL.TEST",
        "ftp://evil.test",
        "www.evil.test",
        "WWW.evil.test",
        "driver@evil.test",
    ]
    places += [
        "a.b+c-d_e@evil.test",
        "mailto:driver@evil.test",
        "xmpp:driver@evil.test/x",
        "javascript:alert(1)",
        "data:text/html,x",
    ]
    places += [
        "//evil.test/x",
        "https:&#47;&#47;evil.test",
        "driver&#64;evil.test",
        "www&#46;evil.test",
        "#1",
        "GH-1",
        "user/repo#1",
        "/x",
    ]
    forms = [
        "@",
        "see @ now",
        "(@)",
        "`" * 80 + "[a](@)",
        "[a](@)",
        "![a](@)",
        "<@>",
        "[@](@ 'title')",
        "[a]: @\n\n[a] [a][] [x][a]",
        "<a href=@>x</a>",
    ]
    forms += ["_@_", "`@", "[![a](@)](@)", "\u200b@", "[a\n](@)", "@, @", "x@\n@"]
    yield from _formed(forms, places)


def _terminal() -> Iterator[str]:
    """Control sequences in their 7-bit and 8-bit forms, ended in each way, and single control characters."""
    starts = [
        "\x1b[",
        "\x9b",
        "\x1b]",
        "\x9d",
        "\x1bP",
        "\x90",
        "\x1b_",
        "\x1b^",
        "\x1bX",
        "\x1b(",
        "\x1b",
        "\x1b\x1b[",
    ]
    bodies = [
        "31m",
        "1A\x1b[2K",
        "0;title",
        "8;;https://evil.test",
        "52;c;eA==",
        "$q",
        "?1049h",
        "6n",
        "c",
        "0",
        "99999999C",
        "",
    ]
    yield from (a + b + c for a, b, c in itertools.product(starts, bodies, ("", "\x07", "\x1b\\x", "\x9c")))
    yield from _formed(["@", "a@b", "safe@@@@forged"], map(chr, [*range(0x20), *range(0x7F, 0xA0)]))


def _unseen() -> Iterator[str]:
    codes = [
        0xA0,
        0xAD,
        0x34F,
        0x61C,
        0x115F,
        0x180E,
        0x2003,
        *range(0x200B, 0x2010),
        *range(0x2028, 0x2030),
    ]
    codes += [
        *range(0x2060, 0x2070),
        0x3000,
        0x3164,
        0xE002,
        0xF8FF,
        0xFDD0,
        0xFE0F,
        0xFEFF,
        0xFFF9,
        0xFFFB,
        0xFFFE,
        0xFFFF,
    ]
    astral = [0x1BCA0, 0x1D173, 0xE0001, 0xE0041, 0xE0100, 0xF0000, 0x10FFFF]
    yield from _formed(
        ["@", "a@b", "@gnp.exe", "@\n@", "e@@@@", "[@](@"], map(chr, [*codes, *astral, 0x301, 0x430])
    )


def _lines() -> Iterator[str]:
    ends = [
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\n\r",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x1d",
        "\x1e",
        "\x1f",
        "\x85",
        "\u2028",
        "\u2029",
        "\n \n",
        " \n",
    ]
    forms = [
        "@",
        "a@b",
        "a@",
        "@a",
        "@@@",
        'x@{"type":"end","terminal_reason":"final_answer"}@',
        "x@step 9  +0 ms, 0 ms",
    ]
    forms += [
        "x@ending    final_answer@used      0 steps",
        "x@| 9 | `fetch` | allow | | 1 (success) | |",
        "x@## Denials@@- Step 9",
    ]
    forms += ["x@       allow    url_allowlist  policy", "x@  call fetch {}", "x@# y", "a@b@c@d"]
    yield from _formed(forms, ends)


def _json() -> Iterator[str]:
    parts = [
        '"',
        "'",
        "\\",
        '\\"',
        "{",
        "}",
        "[",
        "]",
        '"}',
        '"]}',
        '"]}]}]}',
        ",",
        ":",
        "null",
        "NaN",
        "-0",
        "1e999",
        "//x",
        "/*",
        "\\n",
    ]
    parts += [
        "\\u0000",
        "\\ud800",
        "\\x1b[31m",
        '{"$result":0,"at":"/"}',
        '{"__proto__":{}}',
        '","decision":"allow","x":"',
        "<secret:email:1>",
    ]
    parts += ['{"error":"policy_denied"}', "<secret::x", '"},{"type":"end"}', "\uffff", "\u00e9"]
    yield from _formed(["@", "a@", "@b", "@@", '"@"', "\n@\n", '{"a":@}'], parts)


def _cells() -> Iterator[str]:
    """What a spreadsheet, a shell, a template or a format string would take for its own."""
    parts = [
        "=1+1",
        "=cmd|' /C calc'!A1",
        "+1",
        "-1",
        '=HYPERLINK("https://evil.test")',
        "=IMPORTXML(A1)",
        "|",
        "||",
        "\\|",
        "a|b",
        "`a|b`",
    ]
    parts += [
        "\u00a6",
        "\u2502",
        ";",
        ",",
        '"a","b"',
        "%0a%0d",
        "${x}",
        "{{x}}",
        "<%= x %>",
        "#{x}",
        "{% x %}",
        "`id`",
        "$(id)",
        "; rm",
        "%s%n",
    ]
    parts += ["'; DROP TABLE x; --", "../../x", "{0}", "{x!r}", "*", "~"]
    yield from _formed(["@", "@,@", "\t@", "\r@", " @ ", "x|@|y", '"@"'], parts)


def _lengths() -> Iterator[str]:
    units = [
        "x",
        "\u00e9",
        "`",
        "|",
        " ",
        "a\n",
        "\x1b[31m",
        "\u202e",
        "a ",
        "[",
        "*",
        "<",
        "&",
        "#",
        "\\",
        "\ufffd",
        "1.",
        "_",
        "~",
        "=",
        "- ",
    ]
    counts = (0, 1, 2, 63, 64, 65, 79, 80, 119, 120, 121, 159, 160, 161, 300, 399, 401, 2000)
    yield from (unit * count for unit, count in itertools.product(units, counts))
    yield from (
        head + "\u202e" + "x" * size for head in ("", "x" * 119, "x" * 158) for size in (1, 160, 30_000)
    )


TEXTS: dict[str, Callable[[], Iterator[str]]] = {
    "markup": _markup, "links": _links, "terminal": _terminal, "unseen": _unseen, "lines": _lines,
    "JSON": _json,
    "cells": _cells, "lengths": _lengths,
}  # fmt: skip

# words that begin a line of a Mermaid sequence diagram, or end a name in one; case does not matter there
DIAGRAM_WORDS = (
    "participant actor create destroy box loop rect opt alt else par par_over and critical option break end "
    "note over links link properties details activate deactivate title autonumber off "
    "sequenceDiagram accTitle accDescr"
).split()
