"""Fuzzes the gate, the readers of untrusted text and the reader of records. Exit 1 if anything is found.

    python fuzz/run.py [--seconds S] [--seed N] [--target NAME ...] [--engine atheris|random]
    python fuzz/run.py --target NAME --replay FILE

With atheris (`pip install -r requirements-fuzz.txt`) the inputs follow the code's coverage; without it the
same targets get seeds that are changed at random. An input that fails is kept in `.tachograph/fuzz/`.
"""

# ruff: noqa: T201 - it prints its summary

from __future__ import annotations

import argparse
import hashlib
import importlib
import re
import subprocess
import sys
import tempfile
import time  # noqa: TID251 - to say how long it took
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzz import mutate
from fuzz.oracle import ROOT
from fuzz.targets import Target, targets

KEPT = ROOT / ".tachograph" / "fuzz"
SLACK_S = 120  # for starting, and for the last input
SHOWN = 400


@dataclass(frozen=True)
class Result:
    """What came of a target: `failed` is the input, `said` what it raised."""

    tried: int
    how: str
    failed: bytes | None = None
    said: str = ""


def guided(target: Target, seed: int, seconds: int) -> Result:
    """The target in a process of its own, since libFuzzer ends its process."""
    with tempfile.TemporaryDirectory() as place:
        corpus, found = Path(place, "corpus"), Path(place, "found")
        corpus.mkdir()
        found.mkdir()
        for number, data in enumerate(target.seeds()):
            (corpus / f"{number:04}").write_bytes(data)
        words = Path(place, "words")
        words.write_text("".join(f'"{_escaped(token)}"\n' for token in target.tokens), encoding="ascii")
        flags = [
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-max_len={target.longest}",
            f"-timeout={mutate.SLOW_S}",
            f"-dict={words}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
            "-rss_limit_mb=2048",
        ]
        command = [sys.executable, str(ROOT / "fuzz" / "guided.py"), target.name, *flags, str(corpus)]
        done = subprocess.run(  # noqa: S603 - this very interpreter and a file of the project
            command, cwd=ROOT, capture_output=True, timeout=seconds + SLACK_S, check=False
        )
        out = (done.stdout + done.stderr).decode("utf-8", "replace")
        tried = re.search(r"number_of_executed_units:\s*(\d+)", out)
        covered = re.findall(r"\bcov: (\d+)", out)
        how = f"{covered[-1]} branches" if covered else "no coverage"
        kept = sorted(found.iterdir())
        if kept:
            return Result(int(tried[1]) if tried else 0, how, kept[0].read_bytes(), _raised(out))
        if done.returncode != 0 or not tried:
            raise SystemExit(f"{target.name}: atheris ended with {done.returncode}: {out[-SHOWN:]}")
        return Result(int(tried[1]), how)


def missing() -> str | None:
    """Why atheris cannot be had here, or None."""
    try:
        importlib.import_module("atheris")
    except Exception as error:  # noqa: BLE001 - a wheel for another machine fails in its own ways
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def _escaped(token: str) -> str:
    data = token.encode("utf-8", "surrogatepass")
    return "".join(chr(b) if b < 128 and chr(b).isalnum() else f"\\x{b:02x}" for b in data)


def _raised(out: str) -> str:
    """The line of the exception in what atheris printed, or libFuzzer's own word."""
    _, _, after = out.partition("Uncaught Python exception")
    lines = [line for line in after.splitlines() if re.match(r"[A-Za-z_.]+(: |$)", line)]
    said = re.search(r"ERROR: libFuzzer: (.*)", out)
    return lines[0] if lines else said[1] if said else "no word of what"


def unguided(target: Target, seed: int, seconds: int, inputs: int | None) -> Result:
    """The target in this process, with the built-in mutator."""
    tried, data, error = mutate.fuzz(target, seed, seconds, inputs)
    if error is None:
        return Result(tried, "not guided")
    return Result(tried, "not guided", data, "".join(traceback.format_exception_only(error)).strip())


def replay(target: Target, file: Path) -> int:
    """One kept input again, with its traceback. 1 if it still fails."""
    try:
        target.one(file.read_bytes())
    except Exception:  # noqa: BLE001 - whatever it is, it is shown
        traceback.print_exc()
        return 1
    print(f"{target.name}: nothing comes out of {file}")
    return 0


def report(name: str, result: Result, spent: float) -> None:
    """One line for a target; with a finding, where its input is kept and how to see it again."""
    word = "ok" if result.failed is None else "FOUND"
    print(f"{name:8} {word:6} {result.tried:>9,} inputs {spent:5.0f} s  {result.how}", flush=True)
    if result.failed is None:
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{name}-{hashlib.sha256(result.failed).hexdigest()[:12]}"
    kept.write_bytes(result.failed)
    shown = repr(result.failed[:SHOWN]) + ("..." if len(result.failed) > SHOWN else "")
    place = kept.relative_to(ROOT) if kept.is_relative_to(ROOT) else kept
    print(f"  {result.said[:SHOWN]}\n  input {shown}")
    print(f"  kept; again: python fuzz/run.py --target {name} --replay {place}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, print a line for each target; 1 if anything was found."""
    known = targets()
    parser = argparse.ArgumentParser(description="fuzz the gate and what reads untrusted text")
    parser.add_argument("--seconds", type=int, default=20, help="for each target")
    parser.add_argument("--seed", type=int, default=1, help="the same seed tries the same inputs")
    parser.add_argument("--target", choices=known, action="append", metavar="NAME", help=", ".join(known))
    parser.add_argument("--engine", choices=("atheris", "random"), help="atheris where it is installed")
    parser.add_argument("--inputs", type=int, help="at most so many for each target (random only)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="give a kept input to --target")
    options = parser.parse_args(arguments)
    chosen = [known[name] for name in options.target or known]
    if options.replay is not None:
        if len(chosen) != 1:
            parser.error("--replay needs one --target")
        return replay(chosen[0], options.replay)
    why = None if options.engine == "random" else missing()
    engine = options.engine or ("random" if why else "atheris")
    if why:
        instead = (
            "" if engine == "atheris" else "; the built-in mutator tries the same targets, without coverage"
        )
        print(f"no atheris here ({why}){instead}")
        if engine == "atheris":
            return 2
    found = 0
    for target in chosen:
        begun = time.monotonic()
        if engine == "atheris" and target.said is None:
            result = guided(target, options.seed, options.seconds)
        else:
            result = unguided(target, options.seed, options.seconds, options.inputs)
        report(target.name, result, time.monotonic() - begun)
        if target.said is not None:
            print(f"  {target.said()}", flush=True)
        found += result.failed is not None
    print(f"{found} of {len(chosen)} targets with a finding, seed {options.seed}, engine {engine}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
