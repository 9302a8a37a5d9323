"""Projects with a policy of their own, and their coverage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tachograph.review.testing.coverage import Coverage, as_yaml, cover
from tests.support import ROOT


def project(tmp_path: Path, data: dict[str, Any], *tests: dict[str, Any]) -> Path:
    """A project with this policy and these policy tests, and with the shipped tools."""
    (tmp_path / "policy/tests").mkdir(parents=True, exist_ok=True)
    if not (tmp_path / "tools").exists():
        (tmp_path / "tools").symlink_to(ROOT / "tools")
    (tmp_path / "policy/v1.yaml").write_text(json.dumps(data), encoding="utf-8")
    lines = [line for test in tests for line in as_yaml(test)]
    text = "\n".join(["schema: policy-tests/v1", "tests:", *lines, ""])
    place = tmp_path / "policy/tests/v1.yaml"
    place.write_text(text, encoding="utf-8") if tests else place.unlink(missing_ok=True)
    return tmp_path


def covered(root: Path, **more: Any) -> Coverage:
    tests = sorted((root / "policy/tests").glob("*.yaml"))
    return cover(root, tests, root / "runs", **{"jobs": 1, **more})
