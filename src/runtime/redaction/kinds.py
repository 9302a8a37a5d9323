"""The kinds of secrets, each with the rules that find it.

Rules that belong to one vendor or to a name beside a value stand in `secret_rules.json`, with the source of what they
say. Those here are the most common ones. All are linear in the length of a text: what repeats is bounded, possessive,
or ends where the match ends.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple


class Rule(NamedTuple):
    """A rule that finds secrets of one kind.

    Attributes:
        kind: The kind.
        needles: Texts of which one stands in whatever it finds, once that is in lower case.
        pattern: A regular expression; a group `value` is the secret, else all of it.
        hint: A regular expression that matches in the lower case of each text in which it finds something, where the
            needles are in many texts.
    """

    kind: str
    needles: tuple[str, ...]
    pattern: str
    hint: str = ""

    def find(self, text: str, lower: str) -> list[tuple[int, int]]:
        """Return where the secrets begin and end in a text that holds a needle, given its lower case too."""
        if not _compiled(self.hint).search(lower):
            return []
        pattern = _compiled(self.pattern)
        group = "value" if "value" in pattern.groupindex else 0
        return [match.span(group) for match in pattern.finditer(text)]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_START: Final = r"(?<![A-Za-z0-9])"
_WITH_DIGIT: Final = r"(?=[A-Za-z0-9_-]{0,100}?(?=[A-Za-z]{0,15}[0-9])[A-Za-z0-9]{16})"
_END: Final = r"PRIVATE KEY(?: BLOCK)?-----"

# kind, needles, pattern; of secrets that begin at the same place the first one gives the kind
_COMMON: Final = (
    ("anthropic_key", "sk-ant-", _START + r"sk-ant-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{16,}"),
    ("aws_access_key", "akia|asia", _START + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"),
    ("aws_secret_key", "secret", r"(?i:aws_?secret(?:_?access)?_?key)[\"']?\s{0,8}[:=]\s{0,8}[\"']?"
     r"(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"),
    ("bearer_token", "bearer|basic",
     _START + r"(?i:bearer|basic)\s{1,20}(?=[A-Za-z._~+/-]*[0-9=])[A-Za-z0-9._~+/-]{16,}=*"),
    ("github_token", "github_pat_", r"(?<![A-Za-z])github_pat_[A-Za-z0-9_]{22,}"),
    ("google_key", "aiza", _START + r"AIza[A-Za-z0-9_-]{35}"),
    ("huggingface_token", "hf_", _START + r"hf_[A-Za-z0-9]{30,}"),
    # the first part is read as a whole and once: "eyJ-eyJ-..." would else be scanned from each "eyJ" on
    ("jwt", "eyj", r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*?eyJ[A-Za-z0-9_-]{8})[A-Za-z0-9_-]++"
     r"\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("npm_token", "npm_", _START + r"npm_[A-Za-z0-9]{36,}"),
    # words joined by dashes are no key: a part of a key is long and has a digit
    ("openai_key", "sk-", _START + r"sk-(?!ant-)" + _WITH_DIGIT + r"[A-Za-z0-9_-]{20,}"),
    ("private_key", "private key", r"-----BEGIN [A-Z ]{0,40}" + _END
     + r"[\s\S]*?(?:-----END [A-Z ]{0,40}" + _END + r"|\Z)"),
    ("pypi_token", "pypi-age", _START + r"pypi-AgE[A-Za-z0-9_-]{32,}"),
    ("slack_token", "xox|xapp-", _START + r"(?:xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{16,})"),
    ("stripe_key", "whsec_", _START + r"whsec_[A-Za-z0-9]{24,}"),
    ("service_token", "_v1_|shpat_|shpca_|shppa_|shpss_|hvs.|hvb.|hvr.|glsa_|glc_|lin_api_|pmak-|dp.pt.|dp.st."
     "|dp.ct.|gsk_|xai-|pplx-|r8_|ntn_|age-secret-key-1|sntrys_|pul-",
     _START + r"(?:do[opr]_v1_[a-f0-9]{64}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|hv[sbr]\.[A-Za-z0-9_-]{24,}"
     r"|gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}|lin_api_[A-Za-z0-9]{32,}|PMAK-[a-f0-9]{24}-[a-f0-9]{34}"
     r"|dp\.(?:pt|st|ct)\.[A-Za-z0-9]{40,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}|pplx-[A-Za-z0-9]{40,}"
     r"|r8_[A-Za-z0-9]{37}(?![A-Za-z0-9])|ntn_[A-Za-z0-9]{40,}|AGE-SECRET-KEY-1[A-Z0-9]{58}"
     r"|sntrys_[A-Za-z0-9+/=_]{40,}|pul-[a-f0-9]{40}(?![a-f0-9]))"),
    ("url_password", "://", r"://[^\s/:@<>\"']{0,64}:(?P<value>[^\s/@<>\"']{1,128})(?=@[A-Za-z0-9\[])"),
)  # fmt: skip

RULES: Final = (
    *(Rule(kind, tuple(needles.split("|")), pattern) for kind, needles, pattern in _COMMON),
    *(
        Rule(row["kind"], tuple(row["needles"]), row["pattern"], row.get("hint", ""))
        for row in json.loads(Path(__file__).with_name("secret_rules.json").read_text(encoding="utf-8"))
    ),
    Rule("email", ("@",), r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"),
)
KINDS: Final = tuple(sorted({rule.kind for rule in RULES}))
# a mail address is personal data, but no key, and stands in many harmless texts
KEY_KINDS: Final = tuple(kind for kind in KINDS if kind != "email")
# the kind of values that are known by their very text, such as those of the environment
KNOWN: Final = "env"
# characters of a known value: to replace a shorter one would tear up ordinary text
SHORTEST: Final = 8
# the kind of what stands beside the name of a password
PASSWORD: Final = "service_token"  # noqa: S105 - a kind, and no password
