"""Commands on policies: check, version, decide."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ....fail.errors import PolicyError
from ...console import painter
from ..common import (
    OVERLAY_HELP,
    Verb,
    add_files,
    escaped_path,
    load_policies,
    near,
    path_given,
    print_warnings,
    root_of,
)


def add(kinds: Any, verb: Verb) -> None:
    """Add the commands check, version and decide, which stand below `policy`."""
    parser = verb(kinds, "policy check", policy_check)
    _files(parser)
    parser = verb(kinds, "policy version", policy_version)
    _files(parser)
    parser = verb(kinds, "policy decide", policy_decide)
    parser.add_argument(
        "call", type=path_given, metavar="CALL.json", help="file with the call, - for standard input"
    )
    parser.add_argument(
        "--policy", type=path_given, metavar="FILE", help="policy file (default: policy/v1.yaml)"
    )
    add_files(parser, "--overlay", OVERLAY_HELP)
    parser.add_argument("--principal", metavar="NAME", help="on whose behalf the call is made")
    parser.add_argument(
        "--at", metavar="TIME", help="time of the call: 2026-11-23T10:00 by the wall clock, or with an offset"
    )
    parser.add_argument(
        "--all", action="store_true", help="ask every rule, also those behind the first objection"
    )


def _files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="*", type=path_given, metavar="FILE", help="policy file (default: policy/v1.yaml)"
    )
    add_files(parser, "--overlay", OVERLAY_HELP)


def policy_check(options: argparse.Namespace) -> int:
    """Load policies and say what they hold."""
    from ....evidence.checking.differences.drift import counted
    from ....evidence.tasks.code.tools import REMEDY, with_tools_in_code
    from ....runtime.policy.consistency import check_addresses, check_uses
    from ....runtime.policy.per_tool.tool_rule_checks import check_rules_of
    from ....runtime.tools.loader import load_named, names_in

    loaded = load_policies(options, options.files)
    folder = root_of(options) / "tools"
    modules = {name: load_named(name, folder) for name in names_in(folder)}
    for _, policy in loaded:
        if modules:
            tools = with_tools_in_code(modules, policy.tools_named, root_of(options))
            policy.check_tools(tools, REMEDY)
            check_uses(policy, tools.values())
            check_rules_of(policy, tools.values())
        try:
            check_addresses(policy, ())
        except PolicyError:  # only what the tasks say can make such an entry apply
            check_addresses(policy, _hosts_of_tasks(root_of(options)))
    if options.json:
        print(json.dumps({near(path): policy.version for path, policy in loaded}, sort_keys=True))
        return 0
    for path, policy in loaded:
        urls = len(policy.data.get("url_allowlist", ()))
        print(
            f"{escaped_path(path)}: version {policy.version}, {counted(len(policy.allowed), 'tool')} allowed, "
            f"{urls} URL {'entry' if urls == 1 else 'entries'}, {counted(len(policy.mounts), 'mount')}"
        )
        print_warnings(policy)
    return 0


def _hosts_of_tasks(root: Path) -> set[str]:
    """Return the hosts that folders answer for in the tasks of a project."""
    from ....evidence.tasks.task import load_task

    return {
        host
        for path in sorted((root / "tasks").glob("*/*.yaml"))
        for host in load_task(path, root=root).data.get("hosts", ())
    }


def policy_version(options: argparse.Namespace) -> int:
    """Print the version of policies."""
    loaded = load_policies(options, options.files)
    if not options.json:
        print("\n".join(policy.version for _, policy in loaded))
    elif len(loaded) == 1:
        print(json.dumps({"version": loaded[0][1].version}))
    else:
        print(json.dumps({near(path): policy.version for path, policy in loaded}, sort_keys=True))
    return 0


def policy_decide(options: argparse.Namespace) -> int:
    """Decide one call."""
    from ....evidence.queries.decide import read_file, text_of
    from ....runtime.policy.explain import explain

    ((_, policy),) = load_policies(options, [options.policy] if options.policy is not None else [])
    request = read_file(options.call, policy, root_of(options), options.principal, options.at)
    explained, why = explain(*request, every=options.all), None
    reasons: list[str] = []
    paint = painter(sys.stdout, options.no_color)
    if explained.decision.decision != "allow":  # what explains a refusal takes long to import
        from ....review.remedy.explain_denial import explain_decided_call, text_lines

        why = explain_decided_call(*request, root_of(options))
        reasons = [] if why is None else ["", *text_lines(why, paint)]
    if options.json:
        print(
            json.dumps({**explained.to_dict(), "why": None if why is None else why.to_dict()}, sort_keys=True)
        )
    else:
        print("\n".join([text_of(explained, paint), *reasons]))
    return 0 if explained.decision.decision == "allow" else 1
