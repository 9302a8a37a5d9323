"""`make receivers`: real viewers in an environment of their own, then the tests that send runs to them.

    python tests/receivers/run.py [--pictures DIR] [pytest's own words]

Where pip cannot install them it says so and does nothing else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WANTED = ROOT / "requirements-receivers.txt"
PLACE = ROOT / ".receivers"
INSTALL_S = 1500


def installed() -> bool:
    """Whether the viewers are there; installs them where they are not, or where what is wanted changed."""
    mark = PLACE / ".installed"
    digest = hashlib.sha256(WANTED.read_bytes()).hexdigest()
    if mark.is_file() and mark.read_text(encoding="ascii") == digest:
        return True
    print("receivers: installing Phoenix and MLflow (1.3 GB, once, needs a package index) ...", flush=True)
    python = PLACE / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "-r", str(WANTED)]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(PLACE)], check=True, timeout=120)
        done = subprocess.run(pip, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"receivers: skipped, no environment can be made ({type(error).__name__})")
        return False
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        print(f"receivers: skipped, pip cannot install them: {(said or ['it says nothing'])[-1][:200]}")
        return False
    mark.write_text(digest, encoding="ascii")
    return True


def main(words: list[str]) -> int:
    """Install, then test or take pictures."""
    if not installed():
        return 0
    environment = {**os.environ, "TACHOGRAPH_RECEIVERS": str(PLACE)}
    command = [sys.executable, "-m", "pytest", "-q", "tests/receivers", *words]
    if words[:1] == ["--pictures"]:
        command = [sys.executable, "-m", "tests.receivers.pictures", *words[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
