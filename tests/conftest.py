"""Settings of all tests: no time limit for examples of Hypothesis, no `CI`, signals heard, reasons of skips told."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter

import pytest
from hypothesis import settings

# on a busy machine any example can take longer than the default limit of 200 ms
settings.register_profile("no_deadline", deadline=None, derandomize=True)
settings.load_profile("no_deadline")

# `accept` refuses to run in CI; a test that is about this sets the variable itself
os.environ.pop("CI", None)

# a shell that starts the tests in the background lets them ignore Ctrl-C, and so does nohup: their processes would too
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason why tests were skipped, however many they are."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        longrepr = report.longrepr
        text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
        reasons[re.sub(r"^Skipped: ", "", text)] += 1
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"skipped {number}: {reason}")
