"""Settings of a policy that decide no call, compared between two policies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...runtime.core.lines import Line
from ...runtime.formats.json_pointer import escape_pointer
from ...runtime.loop.retry import Schedule
from ...runtime.policy.per_tool.request_rules import PARTS
from ...runtime.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs.

    `at` is its line in NEW, `note` says what the difference means, and `exposes` that it lets out secrets.
    """

    name: str
    before: Any
    after: Any
    at: str
    note: str = ""
    exposes: bool = False

    def to_dict(self) -> Line:
        """Return the setting as JSON data."""
        return asdict(self)


def changed_settings(old: Policy, new: Policy, *, asks: bool) -> tuple[Setting, ...]:
    """Return the settings that differ in effect; `asks` says whether both policies ask a person about some call."""
    changed = [*_retry(old, new), *_redact(old, new), *_patterns(old, new), *_revealed(old, new)]
    changed += [*_on_failure(old, new), *_credentials(old, new)]
    if old.on_deny != new.on_deny:
        note = (
            "the model is told of a denial and may go on"
            if new.on_deny == "inform"
            else "a denial ends the run"
        )
        changed.append(Setting("on_deny", old.on_deny, new.on_deny, new.at("/on_deny"), note))
    if old.wrap_up != new.wrap_up and all(_takes_steps(policy) for policy in (old, new)):
        note = f"the last step is offered {'without' if new.wrap_up else 'with'} tools"
        place = new.at("/loop_budget/wrap_up")
        changed.append(Setting("loop_budget.wrap_up", old.wrap_up, new.wrap_up, place, note))
    before, after = (policy.limits.get("max_attempts") for policy in (old, new))
    if before != after:
        changed.append(
            Setting(
                "loop_budget.max_attempts",
                before,
                after,
                new.at("/loop_budget/max_attempts"),
                "executions of tools in a run, retries among them",
            )
        )
    changed += _requests(old, new)
    if old.signers != new.signers:
        changed.append(_signers(old, new))
    if asks and old.approval_timeout_s != new.approval_timeout_s:
        place = new.at("/approval/timeout_s")
        changed.append(
            Setting(
                "approval.timeout_s",
                old.approval_timeout_s,
                new.approval_timeout_s,
                place,
                "seconds that a person has for an answer",
            )
        )
    return tuple(sorted(changed, key=lambda setting: setting.name))


def _requests(old: Policy, new: Policy) -> list[Setting]:
    """Return the conditions on what tools send, where they differ."""
    return [
        Setting(
            f"tools.{tool}.{part}",
            before,
            after,
            new.at(f"/tools/{escape_pointer(tool)}/{part}"),
            "requests are held to other conditions",
        )
        for tool in sorted({*old.tool_rules, *new.tool_rules})
        for part in PARTS
        for before, after in [[policy.tool_rules.get(tool, {}).get(part) for policy in (old, new)]]
        if before != after or (before and old.lists != new.lists)
    ]


def _signers(old: Policy, new: Policy) -> Setting:
    """Return whose signature an answer needs that allows a call, where that differs."""
    notes = []
    if not new.signers:
        notes.append("answers count without a signature")
    elif not old.signers:
        notes.append("answers count with a signature only")
    pairs = (("count", new, old), ("no longer count", old, new))
    for word, one, other in pairs if old.signers and new.signers else ():
        names = [name for name, key in one.signers.items() if key not in other.signers.values()]
        notes += [f"answers that {', '.join(sorted(names))} signed {word}"] if names else []
    place = new.at("/approval/signers")
    before, after = (sorted(policy.signers) for policy in (old, new))
    return Setting("approval.signers", before, after, place, "; ".join(notes))


def _takes_steps(policy: Policy) -> bool:
    return policy.limits["max_iterations"] > 0 and policy.limits["max_tokens"] > 0


def _retry(old: Policy, new: Policy) -> list[Setting]:
    before, after = (Schedule.of(policy.section("retry")) for policy in (old, new))
    pairs = {
        "max_retries": (before.max_retries, after.max_retries),
        # where nothing is tried twice, nothing is waited for
        **({"backoff_base_ms": (before.base_ms, after.base_ms), "backoff_cap_ms": (before.cap_ms, after.cap_ms)}
           if before.max_retries and after.max_retries else {}),
    }  # fmt: skip
    return [
        Setting(f"retry.{name}", old_value, new_value, new.at(f"/retry/{name}"))
        for name, (old_value, new_value) in pairs.items()
        if old_value != new_value
    ]


def _credentials(old: Policy, new: Policy) -> list[Setting]:
    """Return the credentials that requests get, where they differ."""
    before, after = (
        {
            item.key: f"{item.header} from {item.variable}" + (f" with {item.scheme}" if item.scheme else "")
            for item in policy.credentials.values()
        }
        for policy in (old, new)
    )
    return [
        Setting(
            f"credentials.{key}",
            before.get(key),
            after.get(key),
            new.at(f"/credentials/{escape_pointer(key)}"),
            "what tools ask of this host, they ask with the rights of the credential"
            if key in after
            else "requests to this host get no credential",
        )
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _on_failure(old: Policy, new: Policy) -> list[Setting]:
    notes = {
        "inform": "the model is told of a failure and may go on: each further call is decided by the same rules",
        "terminate": "a failure ends the run",
    }
    pairs = {"default": (old.on_failure, new.on_failure)}
    for name in sorted({*old.on_failure_of, *new.on_failure_of}):
        words = (policy.on_failure_of.get(name, policy.on_failure) for policy in (old, new))
        pairs[f"tools.{name}"] = (next(words), next(words))
    changed = [
        Setting(
            f"on_failure.{name}", before, after, new.at(f"/on_failure/{name.replace('.', '/')}"), notes[after]
        )
        for name, (before, after) in pairs.items()
        if before != after
    ]
    if old.informs_of_failures and new.informs_of_failures and old.max_failures != new.max_failures:
        place = new.at("/on_failure/max_failures")
        note = "failures of which the model is told in a run"
        changed.append(Setting("on_failure.max_failures", old.max_failures, new.max_failures, place, note))
    return changed


def _redact(old: Policy, new: Policy) -> list[Setting]:
    before, after = (sorted({*p.redact, *p.redact_patterns, *p.redact_env}) for p in (old, new))
    if before == after:
        return []
    lost = [kind for kind in before if kind not in after]
    more = [kind for kind in after if kind not in before]
    notes = [f"secrets of the kind {kind} may enter records" for kind in lost]
    notes += [f"secrets of the kind {kind} stay out of records" for kind in more]
    return [Setting("redact", before, after, new.at("/redact"), "; ".join(notes), bool(lost))]


def _patterns(old: Policy, new: Policy) -> list[Setting]:
    """Return the patterns of one name that look for something else."""
    return [
        Setting(
            f"redact.patterns.{name}",
            old.redact_patterns[name],
            new.redact_patterns[name],
            new.at("/redact/patterns"),
            f"secrets of the kind {name} are other texts",
            True,
        )
        for name in old.redact_patterns.keys() & new.redact_patterns.keys()
        if old.redact_patterns[name] != new.redact_patterns[name]
    ]


def _revealed(old: Policy, new: Policy) -> list[Setting]:
    """Return the difference in which tools get the secrets behind placeholders."""
    before, after = (
        sorted(f"{tool}: {kind}" for tool, kinds in policy.reveal_to.items() for kind in set(kinds))
        for policy in (old, new)
    )
    if before == after:
        return []
    notes = [
        f"{pair} is no longer revealed, and a call with such a placeholder is denied"
        for pair in before
        if pair not in after
    ]
    notes += [f"{pair} is revealed: such a secret reaches that tool" for pair in after if pair not in before]
    reveals = any(pair not in before for pair in after)
    return [
        Setting("redact.reveal_to", before, after, new.at("/redact/reveal_to"), "; ".join(notes), reveals)
    ]
