"""Runs from code with the project's tools, recorded for tests of what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tachograph import Agent, LLMOutput, Policy, record
from tachograph.runtime.workspace.mounts import Mount
from tests.support import ROOT, Script


def run_of(
    tmp_path: Path,
    replies: list[LLMOutput],
    *,
    policy: Policy | None = None,
    name: str = "run",
    hooks: Any = (),
    **more: Any,
) -> Path:
    """A run from code with the project's tools and policy, told of denials."""
    if policy is None:
        policy = Policy.load(ROOT / "policy/v1.yaml", [ROOT / "policy/overlays/inform.yaml"], root=ROOT)
    mounts = {"corpus": Mount(ROOT / "data/corpus/v1", "data/corpus/v1")} if "corpus" in policy.mounts else {}
    script = Script([*replies, LLMOutput(final_answer="done")])
    agent = Agent(
        script, ["search", "fetch", "read", "write", "summarize"], policy, mounts=mounts, hooks=hooks
    )
    record(agent, "What now?", out=tmp_path / name, **more)
    return tmp_path / name
