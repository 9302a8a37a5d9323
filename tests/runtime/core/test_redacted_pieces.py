"""A text in pieces is shown without secrets however it is cut, and all else of it is shown as it is."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.core.redacted_pieces import RedactedPieces
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


def redactor_of_kinds() -> Redactor:
    return Redactor(tuple(PATTERNS))


def shown(text: str, cuts: list[int], redact: Redactor) -> list[str]:
    """What is shown of a text that is cut at some places."""
    pieces = RedactedPieces(redact)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [*(pieces.add(text[a:b]) for a, b in pairwise(places)), pieces.rest()]


def secrets_of(text: str) -> list[str]:
    """The secrets in a text, as they stand in it."""
    redact = redactor()
    pattern = redact.pattern_for(text)
    found = pattern.finditer(text) if pattern is not None else ()
    return [text[slice(*redact.secret_of(match))] for match in found]


@settings(max_examples=200)
@given(
    st.lists(words, max_size=20),
    st.sampled_from([" ", "\n", ", "]),
    st.lists(st.integers(0, 3000), max_size=60),
)
def test_what_is_shown_holds_no_secret_and_all_else(said: list[str], between: str, cuts: list[int]) -> None:
    text = between.join(said)
    out = "".join(shown(text, cuts, redactor()))
    for secret in secrets_of(text):
        # the name of a bearer or the head of a key may be shown before what follows it is there
        assert secret.split()[-1] not in out or secret.split()[-1] in text.replace(secret, "")
    assert secrets_of(out) == []
    if not secrets_of(text):
        assert out == redactor().for_model_output()(text)


def test_every_kind_is_kept_out_letter_by_letter() -> None:
    for secret, redact in (
        *((secret, redact) for secret in ALL for redact in (redactor(), redactor_of_kinds())),
        *((secret, redactor()) for secret in (PHRASE, "C-1234 5678")),
    ):
        text = f"I was told {secret} and said nothing, as one should do here, of course."
        (found,) = secrets_of(text)
        out = "".join(shown(text, list(range(len(text))), redact))
        assert found.split()[-1] not in out and secrets_of(out) == [] and out.count("<secret:") == 1
        assert out.startswith("I was told ")
        # a key without an end goes on to the end of the text
        assert text.endswith(found) or out.endswith(" and said nothing, as one should do here, of course.")


def test_a_text_that_breaks_off_shows_no_part_of_a_secret() -> None:
    text = f"I was told by them all, who know it well: {TOKEN}"
    for end in range(len(text)):
        pieces = RedactedPieces(redactor_of_kinds())
        assert "ghp_" not in "".join(pieces.add(letter) for letter in text[:end])


def test_words_are_shown_as_soon_as_they_are_whole() -> None:
    pieces = RedactedPieces(redactor_of_kinds())
    assert [pieces.add(text) for text in ("I", " look", " at ", "it, a", "nd")] == [
        "",
        "I ",
        "look at ",
        "it, ",
        "",
    ]
    pieces = RedactedPieces(Redactor((), [("api_key", TOKEN)]))
    assert [pieces.add(text) for text in ("日本", "語 a", " b")] == ["日本", "語 ", "a "]


def test_a_name_that_was_shown_tells_that_the_next_word_is_a_secret() -> None:
    value = SECRETS["aws_secret_key"][0].split()[-1].rpartition("=")[2].strip("\"'")
    pieces = RedactedPieces(redactor_of_kinds())
    out = [pieces.add(text) for text in ("aws_secret_access_key ", "= ", value[:9], value[9:], " and so on")]
    assert out[:2] == ["aws_secret_access_key ", "= "] and "<secret:aws_secret_key:1> and so " in "".join(out)


def test_a_known_secret_of_several_words_is_held_back_from_its_begin() -> None:
    pieces = RedactedPieces(Redactor((), [("env", PHRASE)]))
    out = [pieces.add(f"{word} ") for word in f"a correct answer is {PHRASE} and so on".split()]
    assert out[:5] == ["a ", "", "correct answer ", "is ", ""] and "is <secret:env:1> and so on " in "".join(
        out
    )
    assert "horse" not in "".join(out)


def test_without_redaction_each_piece_is_shown_as_it_comes() -> None:
    pieces = RedactedPieces(Redactor(()))
    assert [pieces.add(text) for text in ("a", "b c", TOKEN[:9])] == ["a", "b c", TOKEN[:9]]


def test_no_number_of_the_run_is_given_out() -> None:
    redact = redactor()
    assert redact(SECRETS["github_token"][0]) == "<secret:github_token:1>"
    text = f"{TOKEN[:-1]}x and {SECRETS['github_token'][0]} "
    assert "".join(shown(text, [], redact)) == "<secret:github_token:2> and <secret:github_token:1> "
    assert redact(f"{TOKEN[:-1]}y") == "<secret:github_token:2>", "the piece did not take it"


def test_a_long_secret_is_not_looked_at_again_with_each_piece() -> None:
    looked: list[int] = []

    class Counting(Redactor):
        def pattern_for(self, text: str) -> re.Pattern[str] | None:
            looked.append(len(text))
            return super().pattern_for(text)

        def ahead(self) -> Redactor:
            return self

    pieces = RedactedPieces(Counting(["private_key"]))
    pieces.add("-----BEGIN PRIVATE KEY-----\n")
    for _ in range(10_000):
        pieces.add("abcdefg ")
    assert sum(looked) < 20 * 80_000


def test_own_patterns_of_many_words_are_held_back() -> None:
    redact = Redactor((), (), {"name": "Jo(?: [a-z]){12} Doe"})
    text = f"It is Jo {' '.join('abcdefghijkl')} Doe who said so to all of us, and to nobody else at all."
    assert "".join(shown(text, list(range(len(text))), redact)) == redact(text)
