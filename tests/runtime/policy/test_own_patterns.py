"""Patterns that a policy describes itself: none is accepted that a text could keep busy."""

from __future__ import annotations

import pytest

from tachograph import Policy, PolicyError
from tachograph.runtime.policy.own_patterns import MAX_WAYS, pattern_problem


def policy(pattern: str) -> Policy:
    return Policy.from_dict({"schema": "policy/v1", "redact": {"patterns": {"own": pattern}}})


MANY, LONG = "in too many ways", "more than 10,000 characters"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(?:a?a?a?a?a?a?a?){0,7}c", MANY),
        ("(?:a{0,7}){0,7}(?:a{0,7}){0,7}c", MANY),
        ("(?:a+)+c", MANY),
        ("(?:a|a){64}c", MANY),
        ("(?:a|ab?){20}c", MANY),
        ("a{1,200}a{1,200}c", MANY),
        ("a+c", MANY),
        ("a*?c", MANY),
        ("(?>a+)c", MANY),
        ("a++c", MANY),
        ("(?=(?:a?){30})a", MANY),
        (r"\w+@\w+", MANY),
        ("a{20000}", LONG),
        ("(?:aaaaa){3000}", LONG),
    ],
)
def test_a_pattern_is_refused_that_a_text_could_keep_busy(pattern: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said) as raised:
        policy(pattern)
    assert str(raised.value).startswith("<policy>#/redact/patterns/own: the pattern may ")
    assert raised.value.remedy == "count with small numbers, such as {1,64}, and nest no counts"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("C-[0-9]{8}", "C-12345678"),
        (r"[\w.]{1,64}@[\w.]{1,64}", "somebody@mail.test"),
        (r"(?:DE|AT)[0-9]{2}(?: ?[0-9]{4}){4}", "DE00 1234 5678 9012 3456"),
        ("(?<=key: )[a-z]{9}", "key: abcdefghi"),
        (f"a{{1,{MAX_WAYS}}}", "a"),
    ],
)
def test_a_pattern_that_takes_few_ways_is_used(pattern: str, text: str) -> None:
    assert pattern_problem("own", pattern) is None
    assert policy(pattern).redactor()(text).endswith("<secret:own:1>")
