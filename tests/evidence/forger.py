"""A forger of records: changes what a record states and makes everything else follow from it.

The forger knows the whole format: the chain, the three files that follow from the ledger, the manifest's digests
and the index. What it does not do is run the loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.files.manifest import MANIFEST, STATE
from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.recording import index
from tachograph.runtime.formats import canonical_json

Lines = list[dict[str, Any]]


def lines_of(run: Path) -> Lines:
    """The decoded lines of a recorded ledger."""
    return [json.loads(text) for text in (run / STATE).read_bytes().split(b"\n")[:-1]]


def chained(lines: Lines) -> bytes:
    """The bytes of a ledger with these lines, chained anew."""
    head, texts = None, []
    for line in lines:
        texts.append(canonical_json.encode({**line, "prev": head}))
        head = canonical_json.digest(texts[-1])
    return "".join(f"{text}\n" for text in texts).encode("utf-8")


def forge(run: Path, change: Callable[[Lines], object], *, root: Path) -> None:
    """Change the lines of a recorded ledger; rebuild the three other files and the index from it."""
    lines = lines_of(run)
    change(lines)
    state = chained(lines)
    made = rebuild(state, STATE, {MANIFEST: (run / MANIFEST).read_bytes()})
    old = json.loads((run / MANIFEST).read_bytes())
    volatile = {key: old[key] for key in manifests.VOLATILE}
    whole = manifests.render({**json.loads(made[MANIFEST]), **volatile})
    for name, data in {**made, STATE: state, MANIFEST: whole}.items():
        (run / name).write_bytes(data)
    index.update(root)
