"""Kinds of secrets that are known by a fixed prefix or context, each with its pattern.

A pattern may have one group, `value_KIND`: then only that part is the secret, and what stands around it stays.
NEEDLES holds texts of which one, in lower case, stands in every secret of a kind: a text without any is not searched.

`secret_rules.json` has further rules, each for one vendor's secrets or for names that stand beside a value, with the
source of what it says. Each belongs to one of these kinds, so a policy that names a kind has its rules too.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

_START: Final = r"(?<![A-Za-z0-9])"

PATTERNS: Final[dict[str, str]] = {
    "anthropic_key": r"sk-ant-[A-Za-z0-9_-]{16,}",
    "aws_access_key": r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])",
    "aws_secret_key": r"(?i:aws_?secret(?:_?access)?_?key)[\"']?\s{0,8}[:=]\s{0,8}[\"']?"
    r"(?P<value_aws_secret_key>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    "bearer_token": r"(?i:(?<![A-Za-z0-9])(?:bearer|basic))\s+(?=[A-Za-z._~+/-]*[0-9=])[A-Za-z0-9._~+/-]{16,}=*",
    "email": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}",
    "github_token": r"(?<![A-Za-z])(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "gitlab_token": _START + r"gl(?:pat|dt|rt|ptt|soat|cbt|ft|imt|agent)-[A-Za-z0-9_-]{20,}",
    "google_key": r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}",
    "huggingface_token": _START + r"hf_[A-Za-z0-9]{30,}",
    # the first part is read as a whole and once: "eyJ-eyJ-..." would else be scanned from each "eyJ" on
    "jwt": r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*?eyJ[A-Za-z0-9_-]{8})[A-Za-z0-9_-]++"
    r"\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "npm_token": _START + r"npm_[A-Za-z0-9]{36,}",
    "openai_key": r"(?<![A-Za-z0-9])sk-(?!ant-)[A-Za-z0-9_-]{20,}",
    "private_key": r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
    r"(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    "pypi_token": _START + r"pypi-AgE[A-Za-z0-9_-]{32,}",
    "service_token": _START
    + r"(?:SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}"
    + r"|do[opr]_v1_[a-f0-9]{64}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|hv[sbr]\.[A-Za-z0-9_-]{24,}"
    + r"|gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}|dapi[a-f0-9]{32}(?![a-f0-9])|lin_api_[A-Za-z0-9]{32,}"
    + r"|PMAK-[a-f0-9]{24}-[a-f0-9]{34}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}|dp\.(?:pt|st|ct)\.[A-Za-z0-9]{40,}"
    + r"|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}|pplx-[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{37}(?![A-Za-z0-9])"
    + r"|ntn_[A-Za-z0-9]{40,}|figd_[A-Za-z0-9_-]{40,}|NRAK-[A-Z0-9]{27}|AGE-SECRET-KEY-1[A-Z0-9]{58}"
    + r"|sntrys_[A-Za-z0-9+/=_]{40,}|pul-[a-f0-9]{40}(?![a-f0-9])|[0-9]{8,10}:AA[A-Za-z0-9_-]{33})",
    "slack_token": r"(?<![A-Za-z0-9])(?:xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{16,})",
    "stripe_key": _START + r"(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,})",
    "url_password": r"(?<=://)[^\s/:@<>\"']{0,64}:(?P<value_url_password>[^\s/@<>\"']{1,128})(?=@[A-Za-z0-9\[])",
    "webhook_url": r"https://(?:hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/+]{24,}"
    r"|(?:discord|discordapp)\.com/api/webhooks/[0-9]+/[A-Za-z0-9_-]{40,})",
}

NEEDLES: Final[dict[str, tuple[str, ...]]] = {
    "anthropic_key": ("sk-ant-",),
    "aws_access_key": ("akia", "asia"),
    "aws_secret_key": ("secret",),
    "bearer_token": ("bearer", "basic"),
    "email": ("@",),
    "github_token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "gitlab_token": (
        "glpat-",
        "gldt-",
        "glrt-",
        "glptt-",
        "glsoat-",
        "glcbt-",
        "glft-",
        "glimt-",
        "glagent-",
    ),
    "google_key": ("aiza",),
    "huggingface_token": ("hf_",),
    "jwt": ("eyj",),
    "npm_token": ("npm_",),
    "openai_key": ("sk-",),
    "private_key": ("private key",),
    "pypi_token": ("pypi-age",),
    "service_token": (
        *(
            "sg.",
            "_v1_",
            "shpat_",
            "shpca_",
            "shppa_",
            "shpss_",
            "hvs.",
            "hvb.",
            "hvr.",
            "glsa_",
            "glc_",
            "dapi",
        ),
        *(
            "lin_api_",
            "pmak-",
            "sq0atp-",
            "sq0csp-",
            "dp.pt.",
            "dp.st.",
            "dp.ct.",
            "gsk_",
            "xai-",
            "pplx-",
            "r8_",
        ),
        *("ntn_", "figd_", "nrak-", "age-secret-key-1", "sntrys_", "pul-", ":aa"),
    ),
    "slack_token": ("xox", "xapp-"),
    "stripe_key": ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
    "url_password": ("://",),
    "webhook_url": ("hooks.slack.com", "/api/webhooks/"),
}
# a mail address is personal data, but not a key, and stands in many harmless texts
KEY_KINDS: Final = tuple(kind for kind in PATTERNS if kind != "email")
# the kind of values of the environment
ENV_KIND: Final = "env"
# shorter values are no secret ("EMPTY", "ollama"): replacing them would tear up ordinary text
SHORTEST: Final = 8


# a word that is long enough for a secret
WORD: Final = r"\S{16,}"


class SecretRule(NamedTuple):
    """One rule of `secret_rules.json`.

    Attributes:
        name: What it finds.
        kind: The kind that it belongs to.
        needles: Texts of which one, in lower case, stands in whatever it finds.
        pattern: A regular expression; a group `value` is the secret, else all of it.
        source: Where its maker describes the shape.
        hint: A regular expression that matches in the lower case of each text in which the rule finds something, where
            the needles are in many texts.
        across_words: Whether there may be white space in what it finds. If not, that is a word of `WORD` at least.
    """

    name: str
    kind: str
    needles: tuple[str, ...]
    pattern: str
    source: str
    hint: str | None = None
    across_words: bool = False


@lru_cache(maxsize=1)
def secret_rules() -> tuple[SecretRule, ...]:
    """Return the rules of `secret_rules.json`."""
    text = Path(__file__).with_name("secret_rules.json").read_text(encoding="utf-8")
    return tuple(SecretRule(**{**rule, "needles": tuple(rule["needles"])}) for rule in json.loads(text))
