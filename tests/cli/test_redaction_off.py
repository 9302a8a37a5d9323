"""A policy without redaction is loud about it: on standard error, before anything is read or asked."""

from __future__ import annotations

from pathlib import Path

from tests import cli_project
from tests.cli_project import TASK, Say
from tests.evidence.project import replaced

shared, project, say = cli_project.shared, cli_project.project, cli_project.say

OFF = "redaction is off: secrets reach the model and the record; name kinds in redact"


def test_run_and_policy_check_say_that_redaction_is_off(say: Say, project: Path) -> None:
    run = ("run", TASK, "--quiet", "--out", "elsewhere/run")
    for words in (run, ("policy", "check")):
        code, _, err = say(*words)
        assert code == 0 and "redaction" not in err
    replaced(project / "policy/v1.yaml", "redact:\n", 'redact:\n  "off": true\n')
    for words in ((*run[:-1], "elsewhere/other"), ("policy", "check")):
        code, _, err = say(*words)
        assert code == 0 and err.startswith("tachograph: policy/v1.yaml:30:") and OFF in err
