"""The command `tachograph init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from .common import PATH, say

_NEXT = """next:
  cd {folder}
  tachograph show first/denied      what a run did, line by line
  tachograph explain first/denied   what every rule says, and what would allow a call
  tachograph check                  make the recorded runs again and compare them
  tachograph policy test            ask the policy what its tests expect
then write your own tool in tools/, name it in policy/agent.yaml and in profiles/keeper.yaml, and `tachograph run` a
task, or `tachograph run --profile keeper QUESTION --llm PROVIDER:MODEL`"""


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
def init(folder: Path) -> None:
    """Start a project in DIR.

    It has a policy with tests, a tool, an agent, two tasks with recorded runs, and CI.
    DIR is new or empty. Nothing is written outside of it, and no network is needed.
    """
    from ..scaffold.new_project import new_project

    names = new_project(folder)
    for path in sorted(it for it in folder.rglob("*") if it.is_file() and folder / "runs" not in it.parents):
        say(f"{path}")
    for name in names:
        say(f"{folder / 'runs' / name}: recorded")
    for line in _NEXT.format(folder=shlex.quote(str(folder))).splitlines():
        say(line)
