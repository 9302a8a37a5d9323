"""Edits made in the text of a policy file: the same policy, its comments kept."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.review.remedy.edits import ADD, REMOVE, REPLACE, apply, edit
from tachograph.review.suggest.text_edits import edited_text
from tachograph.runtime.policy.policy import Policy

COMMENTED = """\
# a head
schema: policy/v1
tool_registry: {allowed: [search, fetch, ], denied: []} # beside
url_allowlist:   # the hosts
- https://a.test/x   # one

# between
- "https://b.test/"
sandbox:
  mounts:
    corpus: read # to read

    box: write
loop_budget: {max_iterations: 3,
  max_tokens: 10}
approval:
    required_for:
        - fetch # ask
    timeout_s: 5
# the end
"""


@st.composite
def edit_sets(draw: Any) -> list[tuple[str, str, Any]]:
    """Edits of the text above that leave a policy."""
    found: list[tuple[str, str, Any]] = []
    for item in draw(st.permutations(CHANGES)):
        if draw(st.booleans()):
            found.append(item)
    return found


CHANGES: list[tuple[str, str, Any]] = [
    ("/tool_registry/allowed/-", ADD, "read"),
    ("/tool_registry/denied/-", ADD, "write"),
    ("/tool_registry/allowed/0", REMOVE, None),
    ("/url_allowlist/-", ADD, "https://c.test/"),
    ("/url_allowlist/0", REMOVE, None),
    ("/url_allowlist/1", REPLACE, "https://b.test/y"),
    ("/private_networks/-", ADD, "10.0.0.1/32"),
    ("/private_networks/-", ADD, "10.0.0.2/32"),
    ("/sandbox/mounts/corpus", REPLACE, "write"),
    ("/sandbox/mounts/null", ADD, "read"),
    ("/loop_budget/max_iterations", REPLACE, 4),
    ("/loop_budget/max_tool_calls", ADD, 7),
    ("/cycle_detection/max_repeats", ADD, 2),
    ("/arg_schema_enforcement", ADD, "shape"),
    ("/approval/required_for/0", REMOVE, None),
]


@settings(max_examples=120, deadline=None)
@given(edit_sets(), st.booleans())
def test_edits_in_the_text_are_the_edits_of_the_policy(
    changes: list[tuple[str, str, Any]], ends: bool
) -> None:
    text = COMMENTED if ends else COMMENTED.removesuffix("\n").removesuffix("# the end").rstrip("\n")
    policy = Policy.from_dict(yaml.safe_load(text))
    edits = [edit(policy, *change) for change in changes]
    edited = apply(policy, edits)
    found = edited_text(text, edits, edited.data)
    assert found is not None
    kept = [
        line for line in ("# a head", "# beside", "# the hosts", "# between", "# to read") if line in text
    ]
    assert all(comment in found for comment in kept)


LISTED = """\
schema: policy/v1
url_allowlist:
  - "https://a.test/"  # first
  - "https://b.test/"

# what may be called
tool_registry:
  allowed:
    - read
    # and this
    - write
"""


def test_lines_that_no_edit_is_of_stay_as_they_are() -> None:
    policy = Policy.from_dict(yaml.safe_load(LISTED))
    edits = [edit(policy, "/url_allowlist/1", REMOVE), edit(policy, "/tool_registry/allowed/-", ADD, "fetch")]
    expected = LISTED.replace('  - "https://b.test/"\n', "") + "    - fetch\n"
    assert edited_text(LISTED, edits, apply(policy, edits).data) == expected
    first = [edit(policy, "/tool_registry/allowed/0", REMOVE)]
    expected = LISTED.replace("    - read\n", "")
    assert edited_text(LISTED, first, apply(policy, first).data) == expected


def test_a_comment_that_would_be_lost_leaves_the_edits_in_words() -> None:
    alone = "schema: policy/v1\nurl_allowlist:\n- https://a.test/\n# the end\n"
    policy = Policy.from_dict(yaml.safe_load(alone))
    edits = [edit(policy, "/url_allowlist/0", REMOVE)]
    assert edited_text(alone, edits, apply(policy, edits).data) is None


def test_without_ruamel_edits_stay_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    policy = Policy.from_dict(yaml.safe_load(LISTED))
    edits = [edit(policy, "/tool_registry/allowed/-", ADD, "fetch")]
    assert edited_text(LISTED, edits, apply(policy, edits).data) is None


def test_text_that_cannot_be_edited_is_given_up() -> None:
    shared = "schema: policy/v1\ntool_registry: {allowed: &x [read, write]}\n"
    shared += "approval: {required_for: *x, timeout_s: 5}\n"
    policy = Policy.from_dict(yaml.safe_load(shared))
    both = [edit(policy, "/tool_registry/allowed/-", ADD, "fetch")]
    assert edited_text(shared, both, apply(policy, both).data) is None  # the other list would grow too
    apart = [edit(policy, "/approval/timeout_s", REPLACE, 6)]
    assert edited_text(shared, apart, apply(policy, apart).data) == shared.replace("5}", "6}")
    assert edited_text("{", [], {}) is None
