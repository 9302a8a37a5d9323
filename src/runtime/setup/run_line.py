"""The first line of a ledger: everything that decides how a run goes, save the outcomes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...fail.errors import InputError
from ..core.lines import RequestPartsEntry, RunHookEntry, RunLine
from ..core.redaction import Redactor
from ..core.run_ids import new_nonce
from ..formats import canonical_json
from ..formats.canonical_json import NotJson
from ..journal.ledger import SCHEMA
from ..loop.state import MAX_PARALLEL
from ..models.request_parts import OUTPUT_SCHEMA, first_parts
from ..models.types import ToolSpec
from ..policy.gate import Gate
from ..schema.output_type import OutputType
from ..tools.hooks import Hooks
from ..workspace.mounts import Host, Mount
from .run_config import RunConfig


def run_line_of(
    gate: Gate,
    identity: Mapping[str, Any],
    specs: tuple[ToolSpec, ...],
    mounts: Mapping[str, Mount],
    hosts: Mapping[str, Host],
    config: RunConfig,
    output: OutputType | None = None,
    max_parallel: int = MAX_PARALLEL,
    hooks: Iterable[Hooks] = (),
) -> RunLine:
    """Return the first line of a run's ledger.

    Args:
        gate: Decides by the run's policy, over its tools.
        identity: What the model says of itself; its `options` become a part of each request.
        specs: The tools that the model is offered.
        mounts: The run's mounts.
        hosts: The hosts that folders answer for.
        config: The run's configuration, without secrets.
        output: What the final answer must be; its schema becomes a part of each request, as an option.
        max_parallel: How many calls may be performed together.
        hooks: The hooks that are asked.

    Raises:
        InputError: The model's options are no JSON data.
    """
    policy = gate.policy
    model = {key: value for key, value in identity.items() if key != "options"}
    line: RunLine = {
        "type": "run",
        "schema": SCHEMA,
        "run_id": config.run_id,
        "task": None if config.task is None else {key: config.task[key] for key in ("id", "path")},
        "question": config.question,
        "seed": config.seed,
        "clock": {"kind": config.clock.kind, "start": config.clock.start},
        "model": model,
        "policy": {
            "version": policy.version,
            "files": [{"path": path} for path, _ in policy.files],
            "limits": {**policy.limits, "max_repeats": policy.max_repeats, **policy.section("retry")},
            "on_deny": policy.on_deny,
        },
        "tools": [
            {
                "name": tool.name,
                "effect": tool.effect,
                "idempotent": tool.idempotent,
                "schema_digest": tool.schema_digest,
                "file": tool.file,
                **({"declared": True} if tool.is_declared else {}),
                **({"parallel": tool.parallel} if tool.parallel is not None else {}),
            }
            for tool in gate.tools.values()
        ],
        "mounts": {
            name: {"mode": policy.mounts[name], "source": mount.label} for name, mount in mounts.items()
        },
        "hosts": {
            name: {"folder": host.label, "redirects": dict(host.redirects)} for name, host in hosts.items()
        },
        "request_parts": _first_parts(
            specs, identity.get("options", {}), config.opening.instructions, output
        ),
    }
    if output is not None:
        line["output"] = {"retries": output.retries}
        if config.output_file is not None:
            line["output"]["file"] = config.output_file["path"]
    if max_parallel != MAX_PARALLEL:
        line["max_parallel"] = max_parallel
    asked: list[RunHookEntry] = [
        {"name": item.name, "file": item.file, "events": list(item.events)} for item in hooks
    ]
    if asked:
        line["hooks"] = asked
    if policy.informs_of_failures:
        line["policy"]["on_failure"] = {
            "default": policy.on_failure,
            "tools": policy.on_failure_of,
            "max_failures": policy.max_failures,
        }
    if policy.signers:
        line["policy"]["signers"] = policy.signers
    line.update(config.opening.run_line_keys())  # type: ignore[typeddict-item]
    if config.modules:
        line["modules"] = [{"path": item["path"]} for item in config.modules]
    if policy.is_unredacted:
        line["policy"]["redact"] = {"off": True}
    if config.redacted:
        line["policy"].setdefault("redact", {})["values"] = list(config.redacted)
    if config.deadline_s is not None:
        line["deadline_ms"] = int(config.deadline_s * 1000)
    if config.approvals is not None:
        line["approvals"] = config.approvals
    if config.nonce:
        line["nonce"] = config.nonce
    elif config.nonce is None and config.is_asked_outside:
        line["nonce"] = new_nonce()
    if config.principal is not None:
        line["principal"] = config.principal
    if config.rebased:
        line["rebased"] = list(config.rebased)
    return line


def _first_parts(
    specs: tuple[ToolSpec, ...], options: object, instructions: str | None, output: OutputType | None
) -> RequestPartsEntry:
    """Return the parts of requests that a run begins with. Raises InputError for options that no record can hold."""
    try:
        if not isinstance(options, Mapping):
            raise NotJson("no mapping")
        if output is None:
            return first_parts(specs, options, instructions)
        if OUTPUT_SCHEMA in options:
            raise NotJson(f"{OUTPUT_SCHEMA} is the agent's")
        options = {**options, OUTPUT_SCHEMA: json.loads(output.schema)}
        return first_parts(specs, options, instructions)
    except NotJson as error:
        raise InputError(
            f"the model's options cannot be written down: {error.reason}",
            remedy="give the options of the model's identity as a dict of plain JSON data",
        ) from None


def check_run_line(line: RunLine, redactor: Redactor | None) -> None:
    """Refuse a run whose first line cannot be written, or holds a secret that somebody set it up with."""
    try:
        text = canonical_json.encode({**line, "question": ""})
    except NotJson as error:
        raise InputError(
            f"the run cannot be written down: {error.reason}",
            remedy="give run_id, seed and the model's identity as plain JSON data",
        ) from None
    kind = None if redactor is None else redactor.kind_in(text)
    if kind is not None:
        raise InputError(
            f"the run is set up with a secret ({kind}) that its record would hold",
            remedy="take it out of hosts, mounts, the model's options and what tools say of themselves",
        )
