"""A line broken for a terminal: it fits, nothing is lost, colours end where a piece does."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tachograph.evidence.queries.wrap import columns, fold

SGR = re.compile(r"\x1b\[[0-9;]*m")
TEXTS = st.lists(
    st.text("ab :x-漢e\u0301", max_size=30) | st.sampled_from(["::error::x", " " * 50, "y" * 90]), max_size=6
).map("".join)


def _wide(line: str) -> int:
    return sum(map(columns, SGR.sub("", line)))


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["", "31", "2"])), max_size=4), st.integers(12, 90))
def test_every_piece_fits_and_nothing_is_lost(parts: list[tuple[str, str]], width: int) -> None:
    line = "".join(f"\x1b[{colour}m{text}\x1b[0m" if colour else text for text, colour in parts)
    pieces = fold(line, width)
    assert all(_wide(piece) <= width for piece in pieces)
    plain = SGR.sub("", "".join(pieces)).replace(" ", "").replace("\\u{3a}", ":")
    assert plain == SGR.sub("", line).replace(" ", "")
    for piece in pieces:
        codes = SGR.findall(piece)
        assert codes[1::2] == ["\x1b[0m"] * (len(codes) // 2) and len(codes) % 2 == 0
        assert piece == piece.rstrip(" ")
    assert not any(SGR.sub("", piece).lstrip().startswith("::") for piece in pieces[1:])


def test_lines_break_at_spaces_and_hang() -> None:
    assert fold("  one two three", 10, 2) == ["  one two", "    three"]
    assert fold("  one two three", 10, 4) == ["  one two", "     three"]  # never more than half
    assert fold("", 10) == [""] and fold("short", 10) == ["short"]
    assert fold("- " + "x" * 12, 10) == ["- xxxxxxxx", "  xxxx"]  # a mark stays with what it marks
    assert fold("\x1b[31mone two\x1b[0m three", 8) == ["\x1b[31mone two\x1b[0m", "  three"]
    assert fold("\x1b[31maaaa bbbb\x1b[0m", 6) == ["\x1b[31maaaa\x1b[0m", "  \x1b[31mbbbb\x1b[0m"]
