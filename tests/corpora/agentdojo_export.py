"""Print the tools, the ground-truth calls and the world of each AgentDojo suite as JSON.

Runs in an environment that has `agentdojo` (`make agentdojo`), which needs nothing of this project. The world is what
the user's own accounts hold before any task begins and without any injection.
"""

from __future__ import annotations

import json
import sys
from typing import Any

UNIVERSE = "v1.2.2"


def main() -> None:
    """Print one object: suite -> tools, benign and injected tasks with their calls, and origins of list values."""
    from agentdojo.task_suite.load_suites import get_suites  # type: ignore[import-not-found, unused-ignore]

    out = {name: _suite(name, suite) for name, suite in get_suites(UNIVERSE).items()}
    json.dump(out, sys.stdout, default=str)


def _suite(name: str, suite: Any) -> dict[str, Any]:
    world = suite.load_and_inject_default_environment({})
    return {
        "tools": {
            tool.name: {"description": tool.description, "parameters": tool.parameters.model_json_schema()}
            for tool in suite.tools
        },
        "benign": {key: _calls(task, world) for key, task in suite.user_tasks.items()},
        "injection": {key: _calls(task, world) for key, task in suite.injection_tasks.items()},
        "origins": _origins(name, world),
    }


def _calls(task: Any, world: Any) -> list[dict[str, Any]]:
    return [{"tool": call.function, "args": call.args} for call in task.ground_truth(world)]


def _origins(name: str, world: Any) -> dict[str, list[str]]:
    """The values of the lists, by where they stand."""
    if name == "banking":
        account = world.bank_account
        moved = [*account.transactions, *account.scheduled_transactions]
        return {
            "transactions": sorted({end for each in moved for end in (each.sender, each.recipient)} - {"me"}),
            "subjects": sorted({each.subject for each in moved}),
            "files": [world.filesystem.files[key] for key in sorted(world.filesystem.files)],
        }
    if name == "slack":
        return {}
    mails = world.inbox.emails.values()
    origins = {
        "mails": {who for mail in mails for who in (mail.sender, *mail.recipients, *mail.cc, *mail.bcc)},
        "contacts": {contact.email for contact in world.inbox.contact_list},
        "calendar": {who for event in world.calendar.events.values() for who in event.participants},
    }
    if name == "workspace":
        files = world.cloud_drive.files.values()
        origins["drive"] = {who for file in files for who in (file.owner, *file.shared_with)}
    return {key: sorted(found) for key, found in origins.items()}


if __name__ == "__main__":
    main()
