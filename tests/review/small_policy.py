"""A project with a small policy, and files of policy tests for it."""

from __future__ import annotations

from pathlib import Path

from tachograph.review.testing.policy_tests import Result, load_suite, run_suite
from tests.support import ROOT

POLICY = """\
schema: policy/v1
tool_registry:
  allowed: [search, fetch, read, write]
  denied: [summarize]
url_allowlist:
  - "https://corpus.test/"
  - "https://a.test/x"
private_networks: ["10.1.0.0/16"]
sandbox:
  mounts: {corpus: read, box: write}
loop_budget: {max_iterations: 3, max_tokens: 100, max_tool_calls: 4, max_result_bytes: 50, wrap_up: true}
cycle_detection: {max_repeats: 2}
retry: {max_retries: 2, backoff_base_ms: 100, backoff_cap_ms: 300}
approval: {required_for: [write], timeout_s: 9}
redact: [email]
on_failure: {tools: {read: inform}, max_failures: 2}
"""
OVERLAY = "on_deny: inform\nredact: []\n"


def small_project(root: Path) -> Path:
    """Fill a folder that is there."""
    (root / "policy/tests").mkdir(parents=True)
    (root / "tools").symlink_to(ROOT / "tools")
    (root / "policy/v1.yaml").write_text(POLICY, encoding="utf-8")
    (root / "policy/inform.yaml").write_text(OVERLAY, encoding="utf-8")
    return root


def written(root: Path, *tests: str, head: str = "schema: policy-tests/v1") -> Path:
    """A file with these tests, each a flow mapping without its braces."""
    path = root / "policy/tests/some.yaml"
    lines = [head, "tests:", *(f"  - {{name: t{i}, {test}}}" for i, test in enumerate(tests))]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def results(root: Path, *tests: str, head: str = "schema: policy-tests/v1") -> list[Result]:
    return run_suite(load_suite(written(root, *tests, head=head), root), root)[1]


FETCH = 'call: {tool: fetch, arguments: {url: "https://corpus.test/a"}}'
GOOD = "call: {tool: x, arguments: {}}, expect: deny"
