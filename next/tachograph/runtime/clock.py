"""The system's clock. Wall time enters here and nowhere else."""

from __future__ import annotations

import time


def wall_time() -> str:
    """Return the time as RFC 3339 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
