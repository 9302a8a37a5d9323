"""A text in pieces is shown without secrets however it is cut, and together it is the text as a record has it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.core.redacted_pieces import WORDS, RedactedPieces
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.core.secret_kinds import PATTERNS
from tests.runtime.core.test_redaction import SECRETS

PHRASE = "correct horse battery staple over and over again"
TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
ALL = [text for texts in SECRETS.values() for text in texts]
words = st.one_of(
    st.sampled_from(
        [*ALL, PHRASE, "C-1234 5678", "bearer", "aws_secret_key", "=", ":", "日本語", "<secret:jwt:1>"]
    ),
    st.text(st.characters(codec="utf-8"), max_size=8),
)


def redactor() -> Redactor:
    return Redactor(tuple(PATTERNS), [("env", PHRASE)], {"customer": "C-[0-9]{4} [0-9]{4}"})


def shown(text: str, cuts: list[int], redact: Redactor) -> list[str]:
    """What is shown of a text that is cut at some places."""
    pieces = RedactedPieces(redact)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [*(pieces.add(text[a:b]) for a, b in pairwise(places)), pieces.rest()]


@settings(max_examples=200)
@given(
    st.lists(words, max_size=20),
    st.sampled_from([" ", "\n", ", "]),
    st.lists(st.integers(0, 3000), max_size=60),
)
def test_together_the_pieces_are_the_redacted_text(said: list[str], between: str, cuts: list[int]) -> None:
    text = between.join(said)
    assert "".join(shown(text, cuts, redactor())) == redactor().for_model_output()(text)


def test_every_kind_is_kept_out_letter_by_letter() -> None:
    for secret in (*ALL, PHRASE, "C-1234 5678"):
        text = f"I was told {secret} and said nothing, as one should do here, of course."
        out = shown(text, list(range(len(text))), redactor())
        assert "".join(out) == redactor().for_model_output()(text) and secret not in "".join(out)


def test_a_text_that_breaks_off_shows_no_part_of_a_secret() -> None:
    text = f"I was told by them all, who know it well: {TOKEN}"
    for end in range(len(text)):
        pieces = RedactedPieces(redactor())
        assert "ghp_" not in "".join(pieces.add(letter) for letter in text[:end])


def test_ordinary_words_are_shown_before_the_text_is_whole() -> None:
    pieces = RedactedPieces(redactor())
    out = [pieces.add(f"word{number} ") for number in range(100)]
    assert "word0 " in "".join(out[: 4 * WORDS]) and "word80 " in "".join(out)


def test_without_redaction_each_piece_is_shown_as_it_comes() -> None:
    pieces = RedactedPieces(Redactor(()))
    assert [pieces.add(text) for text in ("a", "b c", TOKEN[:9])] == ["a", "b c", TOKEN[:9]]


def test_no_number_of_the_run_is_given_out() -> None:
    redact = redactor()
    assert redact(SECRETS["github_token"][0]) == "<secret:github_token:1>"
    text = f"{TOKEN[:-1]}x and {SECRETS['github_token'][0]} "
    assert "".join(shown(text, [], redact)) == "<secret:github_token:2> and <secret:github_token:1> "
    assert redact(f"{TOKEN[:-1]}y") == "<secret:github_token:2>", "the piece did not take it"


def test_a_long_word_is_not_looked_at_again_with_each_piece() -> None:
    looked: list[int] = []

    class Counting(Redactor):
        def whole_until(self, text: str, end: int) -> int:
            looked.append(len(text))
            return super().whole_until(text, end)

        def ahead(self) -> Redactor:
            return self

    pieces = RedactedPieces(Counting(["jwt"]))
    for _ in range(20_000):
        pieces.add("abcd")
    assert sum(looked) < 20 * 80_000


def test_own_patterns_of_many_words_are_held_back() -> None:
    redact = Redactor((), (), {"name": "Jo(?: [a-z]){12} Doe"})
    text = f"It is Jo {' '.join('abcdefghijkl')} Doe who said so to all of us, and to nobody else at all."
    assert "".join(shown(text, list(range(len(text))), redact)) == redact(text)
