"""Changes of what runs rest on: each makes one run drift, in a known class and for a known cause."""

from __future__ import annotations

from dataclasses import dataclass

from tests.evidence.project import DENIED, RETRIED
from tests.support import CANONICAL

GIVEN, LATE = "runs/policy_gates/approval_given", "runs/failure_modes/timeout"
INFORMED, DEADLINE = "runs/policy_gates/inform_adapts", "runs/loop/run_deadline"
RUNS = tuple(
    name.removeprefix("runs/") for name in (CANONICAL, DENIED, RETRIED, GIVEN, LATE, INFORMED, DEADLINE)
)
POLICY, PAGE, OTHER = "policy/v1.yaml", "data/corpus/v1/op-a4.md", "data/corpus/v1/op-b2.md"
OVERLAY = "policy/overlays/approve_write.yaml"
ALLOWED = "  allowed: [search, fetch, read, write, summarize]\n  denied: []"


def task_of(run: str) -> str:
    return f"tasks{run.removeprefix('runs')}.yaml"


@dataclass(frozen=True)
class Change:
    """Edits of files (file, old, new); `run` then drifts with `kind`, and `causes` are what it is led back to."""

    run: str
    kind: str
    causes: tuple[str, ...]
    edits: tuple[tuple[str, str, str], ...]


# a rule that no recorded call asks for: only the version of the policy moves
REMARK = (POLICY, "private_networks: []", "private_networks: [10.9.0.0/16]")
MINUTES = (PAGE, "20 minutes", "21 minutes")

CHANGES = {
    "a tool denied": Change(
        CANONICAL,
        "VERDICT",
        (POLICY,),
        ((POLICY, ALLOWED, "  allowed: [search, read, write, summarize]\n  denied: [fetch]"),),
    ),
    "an address no longer allowed": Change(
        DEADLINE, "VERDICT", (POLICY,), ((POLICY, "https://corpus.test/", "https://corpus.example/"),)
    ),
    "an overlay asks no person": Change(GIVEN, "VERDICT", (OVERLAY,), ((OVERLAY, "[write]", "[]"),)),
    "a document": Change(RETRIED, "EFFECT", (PAGE,), (MINUTES,)),
    "a tool": Change(
        RETRIED,
        "EFFECT",
        ("tools/summarize.py",),
        (("tools/summarize.py", '{"summary": " "', '{"summary": "In short: " + " "'),),
    ),
    "a document and a remark in the policy": Change(CANONICAL, "EFFECT", (PAGE,), (MINUTES, REMARK)),
    "a document that was read, and a tool that was not called": Change(
        RETRIED, "EFFECT", (PAGE,), (MINUTES, ("tools/read.py", "Read a text file", "Read a plain text file"))
    ),
    "a tool and a document that it does not read": Change(
        RETRIED,
        "EFFECT",
        ("tools/summarize.py",),
        (
            ("tools/summarize.py", '{"summary": " "', '{"summary": "In short: " + " "'),
            (OTHER, "\n\n", "\n\n\n"),
        ),
    ),
    "a tool that was not called": Change(
        RETRIED,
        "DIGEST-ONLY",
        ("tools/read.py",),
        (("tools/read.py", "Read a text file", "Read a plain text file"),),
    ),
    "a call of the model": Change(
        GIVEN,
        "EFFECT",
        (task_of(GIVEN),),
        ((task_of(GIVEN), "path: sandbox/note.md", "path: sandbox/nota.md"),),
    ),
    "an answer of the model, and a remark in an overlay": Change(
        GIVEN,
        "ANSWER",
        (task_of(GIVEN),),
        ((task_of(GIVEN), "The note is in ", "It is in "), (OVERLAY, "# ", "#  ")),
    ),
    "an exception": Change(
        LATE,
        "ENDING",
        (task_of(LATE),),
        ((task_of(LATE), "raises: TimeoutError", "raises: ZeroDivisionError"),),
    ),
    "a limit": Change(RETRIED, "BUDGET", (POLICY,), ((POLICY, "max_tokens: 50000", "max_tokens: 50001"),)),
    "a retry setting": Change(
        RETRIED, "RETRY", (POLICY,), ((POLICY, "backoff_base_ms: 100", "backoff_base_ms: 200"),)
    ),
    "the time of a decision": Change(
        GIVEN,
        "SHAPE",
        (task_of(GIVEN),),
        (
            (
                task_of(GIVEN),
                'start: "2026-01-01T00:00:00Z"',
                'start: "2026-01-01T00:00:00Z"\n  costs_ms: {decision: 2}',
            ),
        ),
    ),
    "the question": Change(
        GIVEN, "TEXT", (task_of(GIVEN),), ((task_of(GIVEN), "number?", "number, please?"),)
    ),
    "the title": Change(
        DENIED,
        "DIGEST-ONLY",
        (task_of(DENIED),),
        ((task_of(DENIED), "Arguments of the wrong shape", "A wrong argument"),),
    ),
    "a remark in the policy, and the title": Change(
        DENIED,
        "DIGEST-ONLY",
        (POLICY, task_of(DENIED)),
        (REMARK, (task_of(DENIED), "Arguments of the wrong shape", "A wrong argument")),
    ),
}
