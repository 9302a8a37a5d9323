"""What a policy that moved lets into records, that the recorded one kept out of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ....fail.errors import InputError
from ....runtime.core.lines import Line
from ....runtime.formats.read_file import read_unlinked
from ....runtime.policy.policy import Policy
from ..differences.exposure import redacts_less
from .recorded_inputs import Earlier


def exposures(run: Line, earlier: Earlier, root: Path) -> list[str]:
    """Return in words what the policy of a run redacts less than the recorded one; none where its files did not move.

    A policy that cannot be read decides nothing, so nothing is let in by it.
    """
    files = [str(item["path"]) for item in run["policy"]["files"]]
    if not any(path in earlier.data for path in files):
        return []
    with tempfile.TemporaryDirectory(prefix="tachograph-policy-") as name:
        try:
            for path in files:
                data = earlier.data[path] if path in earlier.data else read_unlinked(root / path)
                if data is not None:
                    (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
                    (Path(name) / path).write_bytes(data)
            old = Policy.load(
                Path(name) / files[0], [Path(name) / path for path in files[1:]], root=Path(name)
            )
            new = Policy.load(root / files[0], [root / path for path in files[1:]], root=root)
        except (InputError, OSError, ValueError):
            return []
        return redacts_less(old, new)
