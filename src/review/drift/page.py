"""Drift as one page for a browser: no script, no network, no other file; light and dark; readable on a phone."""

from __future__ import annotations

from ...evidence.checking.differences.drift import counted
from ...pages.render import render
from .report import DriftReport


def drift_page(report: DriftReport) -> str:
    """Return the page of a check, whether or not anything drifted."""
    total = counted(report.total, "run")
    title = (
        f"{total} re-derived, all files identical" if report.ok else f"{len(report.runs)} of {total} drifted"
    )
    return render("drift.html", title=title, style="drift.css", report=report)
