"""Make recorded runs again in a process of its own: `python -m tachograph.evidence.checking.experiment.remake`.

Standard input has a JSON object: `root`, the project; `runs`, their names; `out`, a folder. For the run with number N,
`out/N/` gets the files that it gives. A run that cannot be made leaves no folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..check import examine


def main() -> int:
    """Make the runs that standard input names."""
    wanted = json.load(sys.stdin)
    root, out = Path(wanted["root"]), Path(wanted["out"])
    for number, name in enumerate(wanted["runs"]):
        fresh = examine(root / name, root=root).fresh
        if fresh is not None:
            (out / f"{number}.partial").mkdir()
            for file, data in fresh.items():
                (out / f"{number}.partial" / file).write_bytes(data)
            (out / f"{number}.partial").rename(out / str(number))
    return 0


if __name__ == "__main__":
    sys.exit(main())
