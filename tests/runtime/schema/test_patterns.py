"""Patterns of a schema: read as ECMA-262 has them, and refused where no text may be tried on them."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import time
import warnings
from typing import Any

import pytest

from tachograph.runtime.schema.pattern_syntax import BadPattern
from tachograph.runtime.schema.patterns import matches, python_pattern, too_long


def read(pattern: str, text: str) -> bool:
    return matches(python_pattern(pattern), text)


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
        (r"^\ud83d\ude00$", "\U0001f600", "\ude00"), (r"^\@\#\"$", '@#"', "@"),
        # what counts, and what Annex B lets stand for itself
        ("^a{2}$", "aa", "a"), ("^a{1,2}?$", "aa", "aaa"), ("^a{$", "a{", "a"), ("^{a}$", "{a}", "a"),
        ("^a]$", "a]", "a"), ("^x{1,y}$", "x{1,y}", "x"),
        # groups
        (r"^(?<year>\d{4})-(?<month>\d\d)$", "2024-05", "2024"), ("^(?:a|b)(?!c)", "ad", "ac"),
        ("(?<=a)b", "ab", "b"), ("(?<!a)b", "cb", "ab"), ("^(a|)$", "", "b"),
        ("^(?=.*a)(?=.*b).+$", "ba", "bc"), ("^[^$]+$", "a", "$"),
    ],
)  # fmt: skip
def test_patterns_mean_what_ecma_262_says(pattern: str, good: str, bad: str) -> None:
    assert read(pattern, good)
    assert not read(pattern, bad)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (r"^\p{L}+$", r"\p{L}"), (r"\P{Lu}", r"\P{Lu}"), (r"\A\d\Z", r"\A"), (r"^a\Z", r"\Z"),
        (r"\z", r"\z"), ("(?P<n>a)", "(?P<n>"), ("(?i)a", "(?i)"), ("(?i:a)", "(?i:"), ("(?>a)", "(?>a)"),
        ("(?#c)", "(?#"), ("(a)(?(1)b)", "(?("), ("(?<1a>b)", "(?<1a>"), ("(?<a>b)(?<a>c)", "(?<a>"),
        (r"(a)\1", r"\1"), (r"(?<n>a)\k<n>", r"\k"), ("^a{,3}$", "{,n}"), ("^[]$]$", "[]"), ("*a", "'*'"),
        ("a|+", "'+'"), ("(?:{2})", "'{'"), ("x*+", "behind one another"), ("x{2}+", "behind one another"),
        ("x**", "behind one another"), ("^*a", "place"), ("(?=a)*", "place"), ("a{2,1}", "{2,1}"),
        ("a{10000000}", "1,000,000"), ("(", "not closed"), (")", "never opened"), ("[a", "ends too early"),
        ("\\", "ends too early"), ("[b-a]", "backwards"), (r"\x4", r"\x"), (r"\u{110000}", r"\u"),
        (r"\01", r"\0"), ("(?<=a+)b", "fixed width"), ("(" * 60 + ")" * 60, "nested"),
        ("a" * 20_001, "20,000"),
    ],
)  # fmt: skip
def test_what_python_and_ecma_262_read_differently_is_refused_by_name(pattern: str, named: str) -> None:
    with pytest.raises(BadPattern) as refused:
        python_pattern(pattern)
    assert named in refused.value.reason


def test_no_pattern_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pattern in ("^[[a]$", "^[+--b]$", "^[a&&b]$", "^[a||b]$", "^[a~~b]$", "^[[:alpha:]]$"):
            re.purge()
            re.compile(python_pattern(pattern))


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
            part = draw.choice(["(", "(?:", "(?=", "(?!", "(?<=", "(?<!"]) + _drawn(draw, depth - 1) + ")"
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
            found = python_pattern(pattern)
        except BadPattern:
            continue
        ours = [matches(found, text) for text in texts]
        # half an emoji is a character where the u flag cannot be set
        if theirs is None or (ours != theirs and not pattern.isascii()):
            wrong += [(pattern, theirs)] if theirs is None else []
            continue
        compared += 1
        wrong += [(pattern, texts, ours, theirs)] if ours != theirs else []
    assert wrong == [] and compared > 1500


# ---- how long it takes -------------------------------------------------------------------------------------

ENDLESS = [
    "^(a+)+$", "^(a*)*$", "^(a|a)*$", "^(a|ab|b)*$", "^(a?){30}a{30}$", "^(a|a){64}$", "^((a|a){7}){7}$",
    r"^(\w+\s?)*$", "^(a*b*)*$", "^(.*)*$", "(x+x+)+y", r"^(\s*,?\s*)*$", "^(a{1,3}){10}$", "^(?:a+){10,}$",
    "^(?!(a+)+$)", "^(?=(a|a)*b)",
    r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
    "^.*.*.*.*$", "a*a*a*$",
]  # fmt: skip
LINEAR = [
    "^[a-z0-9]+(-[a-z0-9]+)*$", r"^(\d+\.)+\d+$", "^([0-9a-f]{2}){16}$",
    "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$", r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$",
    r"\S", r"\S+", r"^[^\x00]*$", r"^(?!\s*$).+", "^x-", "_id$", r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d).{8,}$",
    "^(?:(?:ab){3})*$", r"^([a-z]{1,63}\.){1,8}[a-z]{2,63}$", r"^(https?|ftp)://[^\s/$.?#].[^\s]*$",
    "^(a|b|c)*$", r"^(?:\w+,)*\w+$", r"^(\s*\w+\s*,)*$",
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    r"^([+-]?\d+(\.\d+)?([eE][+-]?\d+)?)$", r"^P(?!$)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?$",
    "^" + "|".join(f"word{i}" for i in range(200)),
    r"^(([a-z0-9]|[a-z0-9][a-z0-9-]*[a-z0-9])\.)*([a-z0-9]|[a-z0-9][a-z0-9-]*[a-z0-9])$",
]  # fmt: skip
SHORT = {
    r"^[^@]+@[^@]+\.[^@]+$": 4096,
    r"\s+$": 4096,
    "foo.*bar": 4096,
    r"^\s*(.*?)\s*$": 256,
    "x(?!.*y)": 4096,
}


@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_pattern_that_takes_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        python_pattern(pattern)


@pytest.mark.parametrize("pattern", LINEAR)
def test_a_common_pattern_is_tried_on_any_text(pattern: str) -> None:
    assert python_pattern(pattern).limit is None


@pytest.mark.parametrize("pattern", SHORT)
def test_a_pattern_whose_time_grows_is_tried_on_short_texts(pattern: str) -> None:
    found = python_pattern(pattern)
    assert found.limit == SHORT[pattern]
    assert not too_long(found, "x" * SHORT[pattern]) and too_long(found, "x" * (SHORT[pattern] + 1))


def test_a_text_that_is_too_long_for_a_pattern_does_not_match() -> None:
    assert matches(python_pattern("^a*a*$"), "a" * 4096) and not matches(python_pattern("^a*a*$"), "a" * 4097)
    assert matches("^a*a*$", "a" * 9999)  # a plain text has no limit


def test_judging_a_pattern_takes_no_longer_than_using_it() -> None:
    before = time.process_time()
    with pytest.raises(BadPattern):
        python_pattern("^(" + "|".join(f"word{i}" for i in range(150)) + ")+$")
    with pytest.raises(BadPattern):
        python_pattern("a{60}" * 100)
    assert time.process_time() - before < 10


def _bomb(draw: random.Random, depth: int) -> str:
    """A pattern of the kind that takes for ever: few letters, many counts."""
    out = ""
    for _ in range(draw.randint(1, 3)):
        if depth and draw.random() < 0.5:
            inner = "|".join(_bomb(draw, depth - 1) for _ in range(draw.randint(1, 2)))
            part = draw.choice(["(?:", "(?:", "(?:", "(?=", "(?!"]) + inner + ")"
        else:
            part = draw.choice(["a", "b", "[ab]", ".", "[^a]"])
        looks = part.startswith(("(?=", "(?!"))
        out += part + (
            "" if looks else draw.choice(["", "", "*", "+", "?", "{2,}", "{1,3}", "*?", "{0,20}", "{12}"])
        )
    return out


def test_what_is_not_refused_ends_soon() -> None:
    def ring(_signal: int, _frame: Any) -> None:
        raise TimeoutError

    draw = random.Random(11)
    before = signal.signal(signal.SIGALRM, ring)
    kept = refused = 0
    try:
        for _ in range(250):
            pattern = draw.choice(["^", ""]) + _bomb(draw, 2) + draw.choice(["$", "!", "b$"])
            try:
                found = python_pattern(pattern)
            except BadPattern:
                refused += 1
                continue
            kept += 1
            for word in ("a", "b", "ab", "aab"):
                text = (word * 600)[: min(600, found.limit or 600)]
                signal.setitimer(signal.ITIMER_REAL, 20)
                matches(found, text)
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert kept > 80 and refused > 40
