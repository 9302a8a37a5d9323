"""Summarize a text by its most representative sentences, in the order of the text."""

import re
from collections import Counter
from typing import Any

DESCRIPTION = (
    "Summarize a text by keeping its most representative sentences word for word, in the order of the text. "
    "Markdown headings are left out."
)

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {
        "text": {
            "type": "string",
            # Two texts of the largest size that fetch and read return, with a line break between them.
            "maxLength": 2097153,
            "description": "The text to summarize.",
        },
        "max_sentences": {
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
            "default": 3,
            "description": "Largest number of sentences to keep.",
        },
    },
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["summary", "sentences", "of"],
    "properties": {
        "summary": {"type": "string", "maxLength": 2097153},
        "sentences": {
            "type": "integer",
            "minimum": 0,
            "maximum": 50,
            "description": "Number of sentences kept.",
        },
        "of": {
            "type": "integer",
            "minimum": 0,
            "maximum": 2097153,
            "description": "Number of different sentences in the text.",
        },
    },
}

EFFECT = "pure"
IDEMPOTENT = True
TRANSIENT: tuple[type[BaseException], ...] = ()
EXAMPLES: dict[str, dict[str, Any]] = {
    "good": {"text": "One sentence. Another one."},
    "bad": {"text": "One.", "max_sentences": "two"},
}

DEFAULT_MAX_SENTENCES = 3
# A sentence shorter than this is scored as if it had this many words. Otherwise a single frequent word would
# score higher than every full sentence.
MIN_WORDS = 8
# Scores are integers: the mean word frequency in units of 1 / SCALE.
SCALE = 1_000_000
STOP_WORDS = frozenset(
    """
    a about above after again all also an and any are as at be because been before being below but
    by can cannot could did do does each either else ever every few for from had has have he her
    here him his how i if in into is it its itself just may me might more most much must my neither
    never no nor not nothing now of off on once one only or other our out over own same she should
    since so some such than that the their them then there these they this those through to too two
    under until up upon us was we were what when where whether which while who whoever whose why
    will with within without would you your
    """.split()
)

# A full stop after one of these never ends a sentence.
TITLES_AND_LINKS = frozenset(
    "capt cf col dr e.g gen hon i.e lt messrs mr mrs ms mt prof rev sgt st viz vs".split()
)
# A full stop after one of these does not end a sentence if a small letter or a digit follows.
ABBREVIATIONS = frozenset(
    """
    a.m abs app approx apr art aug avg ca ch co corp dec dept ed eds eq est etc ext feb fig figs incl
    inc jan jr jul jun ltd mar max min misc no nos nov oct op p p.m para pp ref sec sect sept sr tab
    tel temp vol
    """.split()
)

_UNIT = re.compile(r"[0-9] [A-Za-z]{1,4}\.$")  # as in "3.5 t."
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_END = re.compile(r"(?<=[.!?])[ \t\r\n]")
_LOWER = {upper: upper + 32 for upper in range(65, 91)}  # A to Z, the same on every Python
# the same letters on every Python: those of ASCII and all beyond; the class is negated as that compiles faster
_WORD = re.compile(r"[^\x00-/:-@\[-^`{-\x7f]+")


def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return ``{"summary", "sentences", "of"}``.

    ``summary`` is the kept sentences joined by one space, ``sentences`` their number and ``of`` the number
    of different sentences in the text. White space inside a sentence is collapsed to single spaces.
    """
    sentences = _sentences(args["text"])
    kept = _choose(sentences, args.get("max_sentences", DEFAULT_MAX_SENTENCES))
    return {"summary": " ".join(kept), "sentences": len(kept), "of": len(sentences)}


def _sentences(text: str) -> list[str]:
    """Return the different sentences in the order of their first appearance.

    A sentence ends at ``.``, ``!`` or ``?`` before white space, at a blank line, at a heading and at the
    end of the text, but not at the full stop of an abbreviation. Pieces without a single word are dropped.
    """
    found: dict[str, None] = {}
    for block in _blocks(text):
        pieces = [" ".join(piece.split()) for piece in _END.split(block)]
        sentence: list[str] = []
        for piece, following in zip(pieces, [*pieces[1:], ""], strict=True):
            sentence.append(piece)
            if following and _is_abbreviated(piece, following):
                continue
            joined = " ".join(sentence)
            if _WORD.search(joined):
                found.setdefault(joined)
            sentence = []
    return list(found)


def _is_abbreviated(piece: str, following: str) -> bool:
    """Return whether the full stop at the end of a piece belongs to an abbreviation inside a sentence.

    At an abbreviation that may also end a sentence, such as "etc." or a unit after a number, what follows decides.
    """
    if not piece.endswith("."):
        return False
    word = piece[piece.rfind(" ") + 1 : -1].lstrip("(['\"").translate(_LOWER)
    if word in TITLES_AND_LINKS:
        return True
    goes_on = "a" <= following[0] <= "z" or "0" <= following[0] <= "9"
    return goes_on and (word in ABBREVIATIONS or _UNIT.search(piece[-16:]) is not None)


def _blocks(text: str) -> list[str]:
    """Return the paragraphs, without headings."""
    blocks = []
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() and not _HEADING.match(line):
            lines.append(line)
        elif lines:
            blocks.append("\n".join(lines))
            lines = []
    if lines:
        blocks.append("\n".join(lines))
    return blocks


def _choose(sentences: list[str], limit: int) -> list[str]:
    """Return at most ``limit`` sentences of the highest score, in text order; equal scores, the earlier."""
    words = [[w for w in _WORD.findall(s.translate(_LOWER)) if w not in STOP_WORDS] for s in sentences]
    frequency = Counter(word for group in words for word in group)
    # Integer division only: floats could order near ties differently from one machine to the next.
    scores = [SCALE * sum(frequency[w] for w in group) // max(len(group), MIN_WORDS) for group in words]
    best = sorted(range(len(sentences)), key=lambda index: (-scores[index], index))[:limit]
    return [sentences[index] for index in sorted(best)]
