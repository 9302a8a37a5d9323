"""One target under atheris, which follows the coverage of the package. Started by `fuzz/run.py`.

python fuzz/guided.py TARGET [flags of libFuzzer] CORPUS
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

with atheris.instrument_imports(include=["tachograph"], enable_loader_override=False):
    from fuzz.targets import targets


def main() -> None:
    """Runs until libFuzzer ends the process."""
    target = targets()[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
