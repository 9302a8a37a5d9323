"""The writer of a run's files."""

from __future__ import annotations

import copy
import json

import pytest

from tachograph.evidence.files import writer as writers
from tachograph.evidence.files.writer import Writer
from tachograph.tracing.step_template import StepTemplates
from tests.support import ROOT


def files(monkeypatch: pytest.MonkeyPatch, before_template: int) -> tuple[dict[str, bytes], int]:
    """Return the files of a run of 20 ordinary steps, and how many of them a template rendered."""
    rendered = []
    render = StepTemplates.render

    def watched(self: StepTemplates, line: object) -> object:
        rendered.append(line)
        return render(self, line)  # type: ignore[arg-type]

    run, step, *_, end = (
        json.loads(line) for line in (ROOT / "runs/canonical/v1/state.jsonl").read_text().splitlines()
    )
    with monkeypatch.context() as patch:
        patch.setattr(StepTemplates, "render", watched)
        patch.setattr(writers, "_BEFORE_TEMPLATE", before_template)
        writer = Writer(None)
        steps = [{**copy.deepcopy(step), "step_index": index} for index in range(1, 21)]
        for line in (run, *steps, end):
            writer.line(line, json.dumps(line))
        writer.finish(())
        return writer.contents(), len(rendered)


def test_a_template_for_late_steps_changes_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    without, none = files(monkeypatch, 20)
    late, ten = files(monkeypatch, 10)
    always, twenty = files(monkeypatch, 0)
    assert (none, ten, twenty) == (0, 10, 20)
    assert without == late == always
