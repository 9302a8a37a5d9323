"""What another policy changes in a recorded run: the decisions that flip, and what is not known after them."""

from __future__ import annotations

from typing import Final

from ...light_dataclasses import dataclass
from ...runtime.core.lines import Line

WIDENING: Final = "widening"


TIGHTENING: Final = "tightening"


NEEDS_APPROVAL: Final = "needs approval"


OTHER_WAY: Final = "goes another way"


@dataclass(frozen=True)
class Flip:
    """A decision that another policy makes differently.

    Attributes:
        kind: `WIDENING`, `TIGHTENING`, `NEEDS_APPROVAL` or `OTHER_WAY`.
        step: Index of the step.
        position: Place of the decision within the step.
        tool: Name of the called tool, None for a decision on a whole step.
        before: The old decision as it stands in a ledger, None where there was none.
        after: The new decision.
    """

    kind: str
    step: int
    position: str
    tool: str | None
    before: Line | None
    after: Line | None

    def to_dict(self) -> Line:
        """Return the flip as plain data."""
        return {
            "kind": self.kind,
            "step": self.step,
            "position": self.position,
            "tool": self.tool,
            "before": self.before,
            "after": self.after,
        }


@dataclass
class Counterfactual:
    """A run under another policy.

    Attributes:
        run: Name of the run.
        recorded_version: Version of the policy that it was recorded under.
        version: Version of the other policy.
        same: Number of equal decisions before the frontier.
        flip: The decision at the frontier, if one differs.
        why: How the run leaves its record if no decision differs, as under another retry schedule.
        behind: Number of recorded decisions after the frontier.
        undecided: Why the other policy's decisions cannot be determined.
        skipped: The run was left out: nothing that is at hand has its tools.
    """

    run: str
    recorded_version: str | None
    version: str
    same: int = 0
    flip: Flip | None = None
    why: str | None = None
    behind: int = 0
    undecided: str | None = None
    skipped: bool = False

    @property
    def is_same(self) -> bool:
        """Whether the run goes as recorded to its end."""
        return self.flip is None and self.why is None and self.undecided is None

    def to_dict(self) -> Line:
        """Return the result as plain data."""
        return {
            "run": self.run,
            "recorded_version": self.recorded_version,
            "version": self.version,
            "same": self.same,
            "frontier": None if self.flip is None else self.flip.to_dict(),
            "why": self.why,
            "untold": self.undecided,
            "behind": self.behind,
            "skipped": self.skipped,
        }
