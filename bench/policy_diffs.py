"""Comparing two policies by what they allow, against loading the two."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import Case, Row, take_turns

from tachograph import Policy
from tachograph.review.compare.policy_compare import compare_policies
from tachograph.runtime.tools.contract import SHIPPED
from tachograph.runtime.tools.loader import load_named

ROOT = Path(__file__).resolve().parent.parent


def with_urls(shipped: str, entry_of: Callable[[int], str], count: int) -> str:
    """Return the shipped policy with so many URL entries more."""
    entry = '  - "https://corpus.test/"\n'
    assert entry in shipped
    return shipped.replace(entry, entry + "".join(f'  - "{entry_of(n)}"\n' for n in range(count)))


def rows(*, quick: bool) -> list[Row]:
    shipped = (ROOT / "policy" / "v1.yaml").read_text(encoding="utf-8")
    tools = {name: load_named(name, ROOT / "tools") for name in SHIPPED}
    others: dict[str, tuple[Callable[[int], str], float]] = {
        "in another order": (lambda n: f"https://host-{999 - n}.example.com/documents", 1.0),
        "ten differ": (lambda n: f"https://host-{n}.example.com/{'records' if n < 10 else 'documents'}", 2.0),
        # each of 2000 changes with an event that both gates were asked about
        "all differ": (lambda n: f"https://host-{n}.example.com/records", 10.0),
    }
    out = []
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder) / "old.yaml", Path(folder) / "new.yaml"
        old.write_text(with_urls(shipped, lambda n: f"https://host-{n}.example.com/documents", 1000), "utf-8")

        def load(_: object) -> tuple[Policy, Policy]:
            return Policy.load(old), Policy.load(new)

        for what, (entry_of, target) in others.items():
            new.write_text(with_urls(shipped, entry_of, 1000), encoding="utf-8")
            turns = take_turns(
                {
                    "compare": Case(lambda pair: compare_policies(*pair, tools), make=load, batch=1),
                    "load": Case(load, batch=1),
                },
                3 if quick else 21,
            )
            name = f"comparing policies of 1000 URLs, {what} : loading both"
            ms = turns.us("compare") / 1000
            out.append(Row(name, turns.ratio("compare", "load"), target, note=f"{ms:.1f} ms"))
    return out
