"""Where randomness enters: the name of a run that is not derived from a task."""

from __future__ import annotations

import secrets


def new_run_id(prefix: str, seed: int) -> str:
    """`<prefix>-s<seed>-<8 hex digits>`, different for every run."""
    return f"{prefix}-s{seed}-{secrets.token_hex(4)}"
