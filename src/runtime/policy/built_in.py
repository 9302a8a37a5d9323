"""The policy of an agent that is given none: `builtin.yaml`, which allows nothing but to compute and to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ...fail.errors import PolicyError
from ..formats.document_digest import digest_of_data
from .loading import named, parse_policy
from .policy import Policy

# what a record calls the file, which is no file of a project
BUILT_IN: Final = "<built-in policy>"
EFFECTS: Final = ("pure", "read")
_FILE: Final = Path(__file__).with_name("builtin.yaml")


def built_in_text() -> bytes:
    """Return the text of the built-in policy, in which no tool and no mount stands."""
    return _FILE.read_bytes()


def built_in_policy(effects: Mapping[str, str], mounts: Iterable[str] = ()) -> Policy:
    """Return the built-in policy for an agent.

    Args:
        effects: The effect kinds of the agent's tools by name; each tool is allowed.
        mounts: Names of the folders that the agent is given; each may be read.

    Raises:
        PolicyError: A tool does more than compute and read.
    """
    for name, effect in effects.items():
        if effect not in EFFECTS:
            raise PolicyError(
                f"the tool {name!r} is of the effect {effect!r}, and an agent without a policy has pure and read "
                "tools only",
                file=BUILT_IN,
                remedy="give a policy: `tachograph policy show --built-in > policy.yaml`, write "
                f'`allowed: [{", ".join(effects)}]` in it, and give policy=Policy.load("policy.yaml")',
            )
    text = built_in_text()
    document = parse_policy(text, BUILT_IN)
    data = {
        **document.data,
        "tool_registry": {"allowed": list(effects)},
        "sandbox": {"mounts": dict.fromkeys(mounts, "read")},
    }
    return Policy(
        data,
        files=[(BUILT_IN, digest_of_data(document.data, text))],
        marks=named(document.marks, BUILT_IN),
        values=named(document.values, BUILT_IN),
    )


def built_in_of(run: Mapping[str, Any]) -> Policy | None:
    """Return the built-in policy of the agent whose run line this is; None if it had another policy.

    Raises:
        PolicyError: The run has a tool that today's built-in policy does not allow.
        KeyError: The line is of an unknown shape.
    """
    if [item["path"] for item in run["policy"]["files"]] != [BUILT_IN]:
        return None
    return built_in_policy({tool["name"]: tool["effect"] for tool in run["tools"]}, run["mounts"])
