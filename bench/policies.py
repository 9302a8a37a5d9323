"""Loading a policy against the least that loading one can mean: parse the bytes, validate the data."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator
from measure import Case, Row, take_turns

from tachograph import Policy
from tachograph.runtime.policy.policy import meta_schema

ROOT = Path(__file__).resolve().parent.parent
LINES = 10_000


def long_policy(shipped: str) -> str:
    """Return the shipped policy, filled up with URL entries to 10,000 lines."""
    entry = '  - "https://corpus.test/"\n'
    assert entry in shipped
    more = LINES - shipped.count("\n")
    urls = "".join(f'  - "https://host-{n}.example.com/documents/{n}"\n' for n in range(more))
    return shipped.replace(entry, entry + urls)


def rows(*, quick: bool) -> list[Row]:
    shipped = ROOT / "policy" / "v1.yaml"
    validator = Draft202012Validator(meta_schema())
    out = []
    with tempfile.TemporaryDirectory() as folder:
        long = Path(folder) / "long.yaml"
        long.write_text(long_policy(shipped.read_text(encoding="utf-8")), encoding="utf-8")

        def floor(path: Path) -> None:
            data = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
            assert not list(validator.iter_errors(data))

        for name, path, batch, rounds in (
            ("policy/v1.yaml", shipped, 20, 60),
            ("a policy of 10,000 lines", long, 1, 21),
        ):
            turns = take_turns(
                {
                    "load": Case(lambda _, p=path: Policy.load(p), batch=batch),
                    "floor": Case(lambda _, p=path: floor(p), batch=batch),
                },
                3 if quick else rounds,
            )
            ms = turns.us("load") / 1000
            out.append(
                Row(
                    f"loading {name} : parse + one validation",
                    turns.ratio("load", "floor"),
                    3.0,
                    note=f"{ms:.1f} ms",
                )
            )
    return out
