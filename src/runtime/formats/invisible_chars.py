"""Characters that a reader cannot see, or that change how others are drawn.

The table is our own: what one Python takes for unseen, every other does, whatever its version of Unicode. Code
points that have no meaning yet count as seen. Each constant stands between the brackets of a regular expression, but
for `STRAY` and `HIDDEN`, and is compiled where it is first needed: for text that is not plain ASCII.
"""

from __future__ import annotations

from typing import Final

NONCHARACTERS: Final = r"\ufdd0-\ufdef" + "".join(f"\\U{n:04x}fffe\\U{n:04x}ffff" for n in range(17))
CONTROL: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff" + NONCHARACTERS
# soft hyphen, fillers, blanks, stand-ins, marks of direction, tags, and the reserved code points between them
INVISIBLE: Final = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800"
    r"\u3164\ufeff\uffa0\ufff0-\ufffc\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# signs that are drawn around or across the characters after them
ENCLOSING: Final = r"\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f"
PRIVATE: Final = r"\ue000-\uf8ff\U000f0000-\U0010ffff"
JOINERS: Final = r"\u200c\u200d"  # many scripts and emoji need them between letters
SPACES: Final = r"\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"  # all but the ordinary one
EMOJI: Final = r"\u2190-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
# behind a variation selector that does not choose how an emoji or the sign of a keycap is drawn: it only hides data
STRAY: Final = (
    rf"(?<![\xa9\xae\u203c\u2049\u2122\u2139{EMOJI}][\ufe0e\ufe0f])(?<![#*0-9][\ufe0e\ufe0f](?=\u20e3))"
)

# what no line that a person reads may hold as it is
HIDDEN: Final = f"[{CONTROL}{INVISIBLE}{ENCLOSING}{PRIVATE}{JOINERS}{SPACES}\ufe00-\ufe0f]{STRAY}"
