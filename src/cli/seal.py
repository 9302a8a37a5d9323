"""The commands `tachograph verify` and `tachograph seal`."""

from __future__ import annotations

from pathlib import Path

import click

from .common import FAILED, JSON, OK, count, dump, project_at, records_at, say

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--signers", metavar="FILE", type=_FILE, help="Check the seal too; FILE lists who may sign.")
@JSON
def verify(runs: tuple[str, ...], signers: Path | None, is_json: bool) -> int:
    """Check records in themselves. Nothing runs; without a RUN, all of them."""
    from ..evidence.seal import verify_seal
    from ..evidence.verify import verify as verify_run

    # by the names that `ls` and `check` print
    found = {name.removeprefix("runs/"): verify_run(folder, name) for name, folder in records_at(runs)}
    who, broken = ("", []) if signers is None else verify_seal(project_at(Path()).root, signers)
    problems = [line for lines in (*found.values(), broken) for line in lines]
    lines = [f"SHA256SUMS: signed by {who}"] if who else []
    lines += problems or [f"{count(len(found), 'record')} verified"]
    if is_json:
        dump({"runs": found, "signed_by": who or None, "problems": broken})
    for line in () if is_json else lines:
        say(line)
    return FAILED if problems else OK


@click.command()
@click.option("--key", required=True, metavar="FILE", type=_FILE, help="The SSH key that signs.")
@click.pass_context
def seal(context: click.Context, key: Path) -> None:
    """Sign runs, policies, profiles, tasks, tools and mcp.lock.

    Records are verified before; the sums and their signature are SHA256SUMS and SHA256SUMS.sig.
    FILE holds a private key, or a public one if ssh-agent has the private one.
    """
    from ..evidence.seal import seal as seal_project

    if code := context.invoke(verify):
        context.exit(code)
    say(f"SHA256SUMS: {count(seal_project(project_at(Path()).root, key), 'file')} sealed")
