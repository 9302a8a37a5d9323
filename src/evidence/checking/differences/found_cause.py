"""What is behind the drift of one run, and how sure that is."""

from __future__ import annotations

from typing import Any, Final

from ....light_dataclasses import dataclass

CODE: Final = "the code"
DEPENDENCY: Final = "a package that its tools import"
HAND: Final = "the record was edited by hand"

TRIED: Final = (
    "tried"  # the run was made again with inputs as recorded, or the record does not hold in itself
)
CLAIM: Final = "claim"  # only the manifest says so, and whoever edits a record can edit that
GUESS: Final = "guess"  # from the place of the differences


@dataclass(frozen=True, slots=True)
class FoundCause:
    """One cause of the drift of one run.

    Attributes:
        sources: Paths of inputs, more than one where only together they are behind it; or `CODE`, `DEPENDENCY`, `HAND`.
        certainty: `TRIED`, `CLAIM` or `GUESS`.
        diff: Lines on how the inputs differ from what was recorded; none where that is not known.
    """

    sources: tuple[str, ...]
    certainty: str
    diff: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The cause in one text."""
        return " and ".join(self.sources) + (" together" if len(self.sources) > 1 else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as plain data."""
        return {"sources": list(self.sources), "certainty": self.certainty, "diff": list(self.diff)}
