"""Patterns of a schema: read as ECMA-262 has them, and refused where no text may be tried on them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess

import pytest
from jsonschema_rs import Draft202012Validator, RegexOptions

from tachograph.runtime.schema.ecma_patterns import (
    MAX_COMPILED,
    MIN_COMPILED,
    BadPattern,
    compiled_bytes,
    linear_pattern,
)


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern, as the engine is given it, matches somewhere in a text."""
    options = RegexOptions(size_limit=MAX_COMPILED)
    return Draft202012Validator({"pattern": linear_pattern(pattern)}, pattern_options=options).is_valid(text)


# ---- what a pattern means ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^[a-z]+$", "abc", "abc\n"), ("^a$|^b$", "b", "b\n"), (r"^a\$$", "a$", "a$\n"), ("^[$]$", "$", "a"),
        (r"^[\]$]$", "$", "$\n"), (r"\\$", "a\\", "\\\n"), (r"^\d+$", "09", "\u0663"),
        (r"^[\d.]+$", "1.2", "\u0663"), (r"^\w+$", "a_1", "\u00e9"), (r"^[\w-]+$", "a-b", "\u00e9"),
        (r"^\D$", "\u0663", "3"), (r"^\W$", "\u00e9", "a"), (r"^[^\x00-\x1f]+$", "a b", "a\n"),
        # a full stop is no end of a line of any kind
        ("^.+$", "a\x85\x0b", "a\rb"), ("^.+$", "a", "a\u2028b"), ("^.+$", "a", "a\u2029b"),
        ("^.$", "\U0001f600", "ab"),
        # white space is that of ECMA-262
        (r"^\s+$", "\t\n\v\f\r \u00a0\ufeff\u2000\u2028\u3000", "\x1c"), (r"^\s$", "\ufeff", "\x85"),
        (r"^\S+$", "a\x1cb", "\ufeff"), (r"^\S$", "\u180e", "\u00a0"),
        # the letters of \b are ASCII
        (r"\bb", "\u00e9b", "ab"), (r"^\B$", "", "a"), (r"a\B", "ab", "a\u00e9"),
        # classes within classes
        (r"^[\D]$", "\u0663", "3"), (r"^[\W]$", "\u00e9", "a"), (r"^[^\D]$", "3", "\u0663"),
        (r"^[\S\s]$", "\x85", ""), (r"^[^\W\d]$", "a", "1"), (r"^[\b]$", "\b", "b"), ("^[^]$", "\n", ""),
        (r"^[\w-\.]+$", "a-b.", "a,"), (r"^[a-\d]+$", "a-1", "b"), ("^[--a]+$", "-1A", "b"),
        ("^[a-]+$", "a-", "b"), ("^[[]$", "[", "]"), ("^[a&&b]+$", "a&b", "c"), ("^[a||b~~c]+$", "|~", "d"),
        # escapes
        (r"^\/a\-b$", "/a-b", "a-b"), (r"^\cJ\cj$", "\n\n", "JJ"), (r"^\0$", "\0", "0"),
        (r"^\x41\u0042$", "AB", "x41"), (r"^\u{1F600}$", "\U0001f600", "u"),
        (r"^\ud83d\ude00$", "\U0001f600", "\U0001f601"), (r"^\@\#\"$", '@#"', "@"),
        # what counts, and what Annex B lets stand for itself
        ("^a{2}$", "aa", "a"), ("^a{1,2}?$", "aa", "aaa"), ("^a{$", "a{", "a"), ("^{a}$", "{a}", "a"),
        ("^a]$", "a]", "a"), ("^x{1,y}$", "x{1,y}", "x"),
        # groups
        (r"^(?<year>\d{4})-(?<month>\d\d)$", "2024-05", "2024"), ("^(a|)$", "", "b"),
        ("^[^$]+$", "a", "$"),
        # known to the engine, and to ECMA-262 with the `u` flag
        (r"^\p{L}+$", "\u00e9", "1"), (r"^\P{Lu}$", "a", "A"), (r"^[\p{Script=Greek}]$", "\u03b1", "a"),
        # the end, as it is said for engines whose `$` also stands before a last newline
        (r"^a(?![\s\S])", "a", "a\n"),
    ],
)  # fmt: skip
def test_patterns_mean_what_ecma_262_says(pattern: str, good: str, bad: str) -> None:
    assert matches(pattern, good)
    assert not matches(pattern, bad)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{Nothing}", r"\pL", r"\A\d\Z", r"^a\Z", r"\z", "(?P<n>a)", "(?i)a", "(?i:a)", "(?x) a", "(?>a)", "(?#c)",
        "(a)(?(1)b)", "(?<1a>b)", "(?<a>b)(?<a>c)", r"(a)\1", r"(?<n>a)\k<n>", "^[]$]$", "*a", "a|+", "(?:{2})",
        "x*+", "x{2}+", "x**", "^*a", r"\b+", "a{2,1}", "a{10000000}", "(", ")", "[a", "\\", "[b-a]", r"\x4",
        r"\u{110000}", r"\ud800", "\ud800", r"\01", r"\a", r"\e", r"\Q", r"[\Q]", "(a{1000}){1000}",
        # no linear-time engine looks around
        "^(?:a|b)(?!c)", "(?<=a)b", "(?<!a)b", "^(?=.*a)(?=.*b).+$",
    ],
)  # fmt: skip
def test_what_is_no_pattern_of_ours_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern) as refused:
        linear_pattern(pattern)
    assert refused.value.reason.isprintable() and refused.value.reason


ATOMS = (
    r"a b 1 . \d \w \s \S \W \D [ab] [^a] [a-c] [\w-] [\w-.] [^\s] [\d\-x] \. \- \/ \$ - _ \u00e9 é \x41 😀 \b \B ^ $ "
    r"[\b] [^] \cJ \t } ] { [.] [$] \0 [\]] \u2028 [\S\s] [^\W] \[ && [a&&b] [[] [--a] [a-] \" \@ # ~"
).split()
COUNTS = "* + ? {2} {1,3} {2,} *? +? ?? {0} {0,2}? {1".split()
LETTERS = [
    *'ab1 _-.$A\u00e9Bx\n\t]\0[&"@#~}{',
    "\u2028",
    "\r",
    "\u00a0",
    "\ufeff",
    "\x1c",
    "\x85",
    "\x08",
    "\u0663",
]


def _drawn(draw: random.Random, depth: int) -> str:
    out = ""
    for _ in range(draw.randint(1, 4)):
        if depth and draw.random() < 0.3:
            part = draw.choice(["(", "(?:"]) + _drawn(draw, depth - 1) + ")"
        elif depth and draw.random() < 0.15:
            part = f"({_drawn(draw, depth - 1)}|{_drawn(draw, depth - 1)})"
        else:
            part = draw.choice(ATOMS)
        out += part + (draw.choice(COUNTS) if draw.random() < 0.3 else "")
    return out


SCRIPT = """
const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const read = ([pattern, texts]) => {
  for (const flag of ['u', '']) {
    try { const found = new RegExp(pattern, flag); return texts.map(text => found.test(text)); } catch (e) {}
  }
  return null;
};
console.log(JSON.stringify(cases.map(read)));
"""


def test_drawn_patterns_mean_what_a_javascript_engine_says() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    draw = random.Random(7)
    cases: list[tuple[str, list[str]]] = []
    for _ in range(3000):
        pattern = draw.choice(["", "^"]) + _drawn(draw, 2) + draw.choice(["", "$"])
        cases.append((pattern, ["".join(draw.choices(LETTERS, k=draw.randint(0, 5))) for _ in range(5)]))
    done = subprocess.run(
        [node, "-e", SCRIPT], input=json.dumps(cases), capture_output=True, text=True, timeout=60, check=True
    )
    compared, wrong = 0, []
    for (pattern, texts), theirs in zip(cases, json.loads(done.stdout), strict=True):
        try:
            ours = [matches(pattern, text) for text in texts]
        except BadPattern:
            continue
        # half an emoji is a character where the u flag cannot be set
        if theirs is None or (ours != theirs and not pattern.isascii()):
            wrong += [(pattern, theirs)] if theirs is None else []
            continue
        compared += 1
        wrong += [(pattern, texts, ours, theirs)] if ours != theirs else []
    assert wrong == [] and compared > 1500


def test_the_size_of_a_pattern_is_the_least_limit_under_which_it_compiles() -> None:
    assert compiled_bytes("^a$") == MIN_COMPILED
    size = compiled_bytes("^.{1,500}$")
    assert MIN_COMPILED < size < MAX_COMPILED
    schema = {"pattern": linear_pattern("^.{1,500}$")}
    Draft202012Validator(schema, pattern_options=RegexOptions(size_limit=size))
    with pytest.raises(ValueError, match="regex"):
        Draft202012Validator(schema, pattern_options=RegexOptions(size_limit=size // 2))


# ---- how long it takes -------------------------------------------------------------------------------------

# each doubles its time with every character, or multiplies it, where an engine tries one way after the other
ENDLESS = [
    "^(a+)+$", "^(a*)*$", "^(a|a)*$", "^(a|ab|b)*$", "^(a?){30}a{30}$", "^(a|a){64}$", "^((a|a){7}){7}$",
    r"^(\w+\s?)*$", "^(a*b*)*$", "^(.*)*$", "(x+x+)+y", r"^(\s*,?\s*)*$", "^(a{1,3}){10}$", "^(?:a+){10,}$",
    r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
    "^.*.*.*.*$", "a*a*a*$", r"^[^@]+@[^@]+\.[^@]+$", r"^\s*(.*?)\s*$",
]  # fmt: skip


TAKES_ANYTHING = {"^(.*)*$", "^.*.*.*.*$", "a*a*a*$", r"^\s*(.*?)\s*$"}


@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_pattern_that_elsewhere_takes_for_ever_is_judged(pattern: str) -> None:
    """The test ends: texts of 100,000 characters, each of which could take part in many ways."""
    for word in ("a", "ab", "x", " ", ",", "a@"):
        assert matches(pattern, word * 100_000 + "!") is (pattern in TAKES_ANYTHING)
