"""The code on the page runs, as far as what it needs is installed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tachograph.adapters.common import ToolOptions
from tests.support import ROOT

PAGE = (ROOT / "docs/adapters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
NEEDED = ("langchain_core", "agents")


def _needs(block: str) -> str | None:
    return next((name for name in NEEDED if f"from {name}" in block), None)


@pytest.mark.parametrize("needed", [None, *NEEDED], ids=str)
def test_the_code_on_the_page_runs(needed: str | None) -> None:
    if needed is not None:
        pytest.importorskip(needed, reason=f"{needed} is not installed: make test-adapters")
    names: dict[str, Any] = {"__name__": "page"}
    chosen = [block for block in BLOCKS if _needs(block) in (None, needed)]
    assert len(BLOCKS) == 5 and len(chosen) > 1
    for block in chosen:
        exec(compile(block, "docs/adapters.md", "exec", dont_inherit=True), names)


def test_the_options_are_described() -> None:
    for name in ToolOptions.__annotations__:
        assert f"`{name}`" in PAGE or f"`{name}=`" in PAGE, name
