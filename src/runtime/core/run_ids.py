"""Where randomness enters: the name of a run that is not derived from a task, and the marker of its processes."""

from __future__ import annotations


def new_run_id(prefix: str, seed: int) -> str:
    """`<prefix>-s<seed>-<8 hex digits>`, different for every run."""
    import secrets  # slow to import, and a run of a task is named after it

    return f"{prefix}-s{seed}-{secrets.token_hex(4)}"


def new_nonce() -> str:
    """32 hex digits that make the questions of a run to a person its own; they stand in its record."""
    import secrets

    return secrets.token_hex(16)


def new_marker() -> str:
    """16 hex digits, different for every run that is begun; they stand in its journal, never in its record."""
    import secrets

    return secrets.token_hex(8)


def new_key() -> str:
    """32 hex digits: the key of the digests of a run's secrets; it stands in the journal, never in the record."""
    import secrets

    return secrets.token_hex(16)
