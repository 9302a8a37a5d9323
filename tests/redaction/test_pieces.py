"""A text in pieces is shown as it would be as a whole, however it is cut, and never with a part of a secret."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.runtime.redaction.kinds import KINDS
from tachograph.runtime.redaction.pieces import Pieces
from tests.redaction.shapes import SHAPES, draw
from tests.redaction.test_redactor import FORGED, PHRASE, TOKEN, redactor, texts


def shown(text: str, cuts: list[int]) -> list[str]:
    pieces = Pieces(redactor())
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [*(pieces.feed(text[begin:end]) for begin, end in pairwise(places)), pieces.end()]


@given(st.lists(texts, max_size=3).map(" ".join), st.lists(st.integers(0, 3000), max_size=60))
def test_pieces_give_what_the_whole_gives(text: str, cuts: list[int]) -> None:
    assert "".join(shown(text, cuts)) == redactor().text(text)


def test_a_text_that_breaks_off_shows_no_part_of_a_secret() -> None:
    for name in SHAPES:
        text, secret = draw(name)
        whole = f"They say: {text}"
        pieces = Pieces(redactor())
        out = "".join(pieces.feed(letter) for letter in whole)
        assert not any(secret[at : at + 6] in out for at in range(len(secret) - 5)), name
        assert redactor().text(whole).startswith(out), name


@pytest.mark.parametrize(
    "text", ["api_key%3D {}", "api_key \\u003d {}", "password %3A {}", "login%20me password {}"]
)
def test_what_only_escapes_tell_is_held_back_too(text: str) -> None:
    whole = f"{text.replace('{}', 'a1B2c3D4e5F6g7H8')} and so on"
    assert "".join(shown(whole, list(range(len(whole))))) == redactor().text(whole) != whole


def test_words_are_shown_as_soon_as_the_next_one_begins() -> None:
    pieces = Pieces(redactor())
    said = ["I", " look", " at ", "it, a", "nd", " correct", " answers", f" {'a' * 70}", " count"]
    out = ["", "I ", "look ", "at it, ", "", "and ", "correct ", "answers ", f"{'a' * 70} "]
    assert [pieces.feed(text) for text in said] == out


def test_a_phrase_is_held_back_from_its_beginning() -> None:
    pieces = Pieces(redactor())
    out = [pieces.feed(f"{word} ") for word in f"a correct answer is {PHRASE} and so on".split()]
    assert out[:5] == ["", "a ", "correct ", "answer ", "is "]
    assert out[5:8] == ["", "", ""]


def test_no_placeholder_is_given_out() -> None:
    redact = redactor(KINDS)
    pieces = Pieces(redact)
    out = pieces.feed(f"{TOKEN} and {FORGED} or")
    assert redact.given_out == redactor(KINDS).given_out
    assert redact.text(out) != out  # nobody may repeat it yet
    assert redact.text(f"{TOKEN} and {FORGED} or") == out + pieces.end()
