"""What each command does: call, print, exit code."""

from .checking import check, replay, seal, verify
from .looking import explain, show, version
from .policies import policy_check, policy_decide, policy_version
from .running import resume, run

__all__ = [
    "check",
    "explain",
    "policy_check",
    "policy_decide",
    "policy_version",
    "replay",
    "resume",
    "run",
    "seal",
    "show",
    "verify",
    "version",
]
