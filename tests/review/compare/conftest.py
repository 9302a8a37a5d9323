"""What comparisons of policies share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def pairs() -> int:
    """How many generated pairs of policies are compared with trying every call."""
    return int(os.environ.get("TACHOGRAPH_POLICY_PAIRS", "60"))
