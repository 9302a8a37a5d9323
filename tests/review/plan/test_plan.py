"""`policy diff`: by the policies alone and in the recorded runs, in words, as data, as a comment for a forge."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tachograph import Policy
from tachograph.cli import main as cli
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.recording.recorded import RecordedModel
from tachograph.runtime.driver.live_executor import LiveExecutor
from tachograph.runtime.models.scripted import Stub
from tachograph.runtime.tools import loader as tools
from tests.evidence.project import FEW, all_runs, copy_inputs, edit_lines, first_line, replaced
from tests.evidence.project import tachograph as command
from tests.support import ROOT

SHIPPED = "policy/v1.yaml"
RUNS = [path.relative_to(ROOT).as_posix() for path in all_runs()]


def _is_under_shipped(run: str) -> bool:
    files = first_line(ROOT / run)["policy"]["files"]
    return bool(files) and files[0]["path"] == SHIPPED


ELSEWHERE = [
    run for run in RUNS if not _is_under_shipped(run)
]  # under a policy of their own, or one made in code
JUDGED = len(RUNS) - len(ELSEWHERE)
DENIED_URL = "inform_adapts one_of_several_denied pg1_off_allowlist_url pg1_redirect_off_allowlist".split()


@pytest.fixture
def nothing_is_performed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools, models and workspaces raise, here and in every process forked from here."""

    def performs(*_: object, **__: object) -> None:
        raise AssertionError("something was performed")

    for where, name in ((LiveExecutor, "perform"), (RecordedModel, "__call__"), (Stub, "__call__")):
        monkeypatch.setattr(where, name, performs)
    monkeypatch.setattr("tachograph.runtime.workspace.workspace.Workspace.__init__", performs)
    real = tools.Tool.__post_init__

    def made(self: tools.Tool) -> None:
        real(self)
        object.__setattr__(self, "run", performs)

    monkeypatch.setattr(tools.Tool, "__post_init__", made)


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def _new(tmp_path: Path, *changes: tuple[str, str]) -> str:
    """The shipped policy with parts of its text changed, as a file."""
    file = tmp_path / "new.yaml"
    shutil.copy(ROOT / SHIPPED, file)
    for old, new in changes:
        replaced(file, old, new)
    return str(file)


def _diff(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["policy", "diff", *words, "--json"])
    out, err = capsys.readouterr()
    assert err == "", err
    data = json.loads(out)
    assert out == json.dumps(data, sort_keys=True) + "\n" and data["exit"] == code
    return code, data


def _runs(data: dict[str, Any], group: str) -> list[str]:
    return [item["run"].rpartition("/")[2] for item in data["runs"][group]]


DROP_READ = ("allowed: [search, fetch, read, write, summarize]", "allowed: [search, fetch, write, summarize]")
MORE_URLS = ('- "https://corpus.test/"', '- "https://corpus.test/"\n  - "https://news.example/"')
ASK = ("required_for: []", "required_for: [search]")
CHANGES: dict[str, tuple[tuple[tuple[str, str], ...], int]] = {
    "tool dropped": ((DROP_READ,), 0),
    "url added": ((MORE_URLS,), 1),
    "url removed": ((('url_allowlist:\n  - "https://corpus.test/"', "url_allowlist: []"),), 0),
    "mount for writing": ((("corpus: read", "corpus: write"),), 1),
    "mount for reading": ((("sandbox: write", "sandbox: read"),), 0),
    "budget down": ((("max_tool_calls: 40", "max_tool_calls: 2"),), 0),
    "budget up": ((("max_tool_calls: 40", "max_tool_calls: 41"),), 1),
    "approval added": ((ASK,), 0),
    "told of denials": ((("on_deny: terminate", "on_deny: inform"),), 0),
    "no retry": ((("max_retries: 3", "max_retries: 0"),), 0),
    "both": ((DROP_READ, MORE_URLS), 1),
}  # fmt: skip


@pytest.mark.usefixtures("nothing_is_performed")
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_recorded_run_is_told_of(
    change: str, jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run as `under` has it with the new policy and the run's own overlays over it; none is lost."""
    changes, wanted = CHANGES[change]
    new = _new(tmp_path, *changes)
    code, data = _diff(capsys, SHIPPED, new, "--runs", "runs", "--jobs", jobs)
    told = {item["run"]: (group, item) for group, items in data["runs"].items() for item in items}
    assert sorted(told) == RUNS
    assert [item["run"] for item in data["runs"]["not under this policy"]] == ELSEWHERE
    for run, (group, item) in told.items():
        if run in ELSEWHERE:
            continue
        line = json.loads((ROOT / run / "state.jsonl").read_bytes().split(b"\n", 1)[0])
        own = [ROOT / entry["path"] for entry in line["policy"]["files"][1:]]
        found = under(ROOT / run, Policy.load(new, own, root=ROOT), root=ROOT)
        kind = found.flip.kind if found.flip else "goes another way" if found.why else "same"
        assert group == kind, run
        assert {key: item[key] for key in ("same", "behind", "why")} == {
            "same": found.same,
            "behind": found.behind,
            "why": found.why,
        }
        if found.flip is not None:
            flip, theirs = found.flip.to_dict(), item["frontier"]
            then, now = flip.pop("before"), theirs.pop("before")
            assert theirs == flip and flip["step"] and flip["position"], run
            for key in ("decision", "rule_id", "at"):
                assert (then or {}).get(key) == (now or {}).get(key)
    assert data["runs"]["cannot tell"] == []
    assert code == wanted == int(data["widens"])
    assert not data["equal"]


def test_the_groups_of_a_known_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = _diff(capsys, SHIPPED, _new(tmp_path, MORE_URLS, ASK), "--runs", "runs")
    assert code == 1 and data["verdict"].startswith("1 widening, 1 needs approval; ")
    assert _runs(data, "widening") == DENIED_URL
    assert "v1" in _runs(data, "needs approval") and "smollm" in _runs(data, "needs approval")
    first = data["runs"]["widening"][0]["frontier"]
    assert (first["before"]["decision"], first["before"]["at"]) == ("deny", "policy/v1.yaml#/url_allowlist")
    assert (first["after"]["decision"], first["after"]["at"]) == (
        "allow",
        "new.yaml#/url_allowlist/https:~1~1news.example~1",
    )


def test_an_equal_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / SHIPPED).read_text(encoding="utf-8")
    head, _, rest = text.partition("tool_registry:")
    other = tmp_path / "new.yaml"
    other.write_text(
        "# the same in other words\n"
        + head.replace("# The shipped", "# A shipped")
        + "tool_registry:"
        + rest.replace("[search, fetch, read, write, summarize]", "[write, summarize, search, fetch, read]")
    )
    code, data = _diff(capsys, SHIPPED, str(other), "--runs", "runs")
    assert code == 0 and data["equal"] and len(data["runs"]["same"]) == JUDGED
    assert cli.main(["policy", "diff", SHIPPED, str(other)]) == 0
    assert capsys.readouterr().out == "policy diff: the two allow and deny the same\n"
    assert cli.main(["policy", "diff", SHIPPED, str(other), "--runs", "runs"]) == 0
    said = (
        f"policy diff: the two allow and deny the same; 0 of {JUDGED} recorded runs decide otherwise,"
        f" {len(ELSEWHERE)} not under this policy"
    )
    assert " ".join(capsys.readouterr().out.split()).startswith(said)


# ---- where OLD was, NEW is -------------------------------------------------------------------------------


def test_a_runs_own_overlays_lie_over_the_new_policy_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an overlay sets is not changed by the file below it."""
    _, data = _diff(
        capsys, SHIPPED, _new(tmp_path, ("max_iterations: 10", "max_iterations: 1")), "--runs", "runs"
    )
    three = {"pg3_loop_budget", "wrap_up", "smollm"}  # their overlays give three iterations
    assert three <= set(_runs(data, "same")) and "v1" in _runs(data, "tightening")
    _, data = _diff(capsys, SHIPPED, _new(tmp_path, ASK), "--runs", "runs")
    assert {"approval_given", "approval_refused"} <= set(_runs(data, "same"))


def test_a_run_on_another_policy_is_not_under_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    text = (ROOT / SHIPPED).read_text(encoding="utf-8")
    other.write_text(text.replace("max_repeats: 3", "max_repeats: 4"), encoding="utf-8")
    code, data = _diff(capsys, str(other), _new(tmp_path, MORE_URLS), "--runs", "runs")
    assert code == 1 and len(data["runs"]["not under this policy"]) == len(RUNS)
    assert data["verdict"] == "1 widening, 1 tightening; no recorded run stands on the old policy"
    # what says the same elsewhere is the same policy
    copy = tmp_path / "copy.yaml"
    copy.write_text((ROOT / SHIPPED).read_text(encoding="utf-8") + "# a remark\n", encoding="utf-8")
    _, data = _diff(capsys, str(copy), _new(tmp_path, MORE_URLS), "--runs", "runs")
    assert _runs(data, "widening") == DENIED_URL


def test_overlays_of_the_old_policy_choose_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--old-overlay", "policy/overlays/approve_write.yaml", "--runs", "runs"]
    code, data = _diff(capsys, SHIPPED, SHIPPED, *words)
    told = {group: _runs(data, group) for group in data["runs"] if group != "not under this policy"}
    asked = ["approval_given", "approval_offered_twice", "approval_refused"]
    assert sorted(name for names in told.values() for name in names) == asked
    # without the overlay nobody is asked any more
    assert code == 1 and sorted(told["widening"]) == asked
    both = ["--overlay", "policy/overlays/approve_write.yaml"]
    assert _diff(capsys, SHIPPED, SHIPPED, *words, *both)[1]["equal"]


# ---- git -------------------------------------------------------------------------------------------------


def _git(folder: Path, *words: str) -> None:
    settings = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project in a folder of a repository, its policy changed since the last commit."""
    project = copy_inputs(tmp_path / "repository/agents", FEW)
    _git(tmp_path / "repository", "init", "-q", "-b", "main")
    _git(tmp_path / "repository", "add", ".")
    _git(tmp_path / "repository", "commit", "-q", "-m", "x")
    replaced(project / SHIPPED, DROP_READ[0], DROP_READ[1])
    replaced(project / SHIPPED, "# The shipped", "# One more line.\n# The shipped")
    return project


@pytest.mark.parametrize("ref", ["HEAD:agents/", "main:agents/", "HEAD:./"])
def test_the_old_policy_as_git_has_it(
    ref: str, repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    code, data = _diff(capsys, f"{ref}policy/v1.yaml", SHIPPED, "--runs", "runs")
    assert code == 0 and _runs(data, "tightening") == ["v1"]
    frontier = data["runs"]["tightening"][0]["frontier"]
    name = ref.partition(":")[0]
    assert frontier["before"]["at"] == f"{name}:policy/v1.yaml#/sandbox/mounts/corpus"
    assert frontier["after"]["at"] == "policy/v1.yaml#/tool_registry/allowed"
    assert data["policies"]["changes"][0]["at"] == f"{name}:policy/v1.yaml:4"
    # with an overlay of the working tree merged over git's file
    (repository / "policy/overlays/here.yaml").write_text("url_allowlist: []\n")
    words = ["--old-overlay", "policy/overlays/here.yaml"]
    _, data = _diff(capsys, f"{ref}policy/v1.yaml", SHIPPED, *words)
    assert [change["kind"] for change in data["policies"]["changes"]] == ["widening", "tightening"]


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("HEAD:policy/none.yaml", "neither a file nor one that git has"),
        ("nowhere:agents/policy/v1.yaml", "neither a file nor one that git has"),
        ("--output=x:y", None),
        ("HEAD:agents/policy", "neither a file nor one that git has"),
        ("policy/none.yaml", "no such policy file"),
        ("HEAD:" + "x" * 5000, "neither a file nor one that git has"),
        ("HEAD:agents/README.md", "HEAD:README.md:4:36: not valid YAML here"),
    ],
)
def test_what_git_does_not_have_is_one_line(
    old: str,
    said: str | None,
    repository: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(repository)
    words = ["policy", "diff", old, SHIPPED] if said else ["policy", "diff", "--", "-x:y", SHIPPED]
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and (said or "is not a commit") in err, err
    assert not (repository / "x").exists()


# ---- what cannot be told ---------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    to = copy_inputs(tmp_path / "project", [*FEW, "policy_gates/approval_given"])
    monkeypatch.chdir(to)
    return to


def test_what_cannot_be_told_counts_as_a_widening(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(project / SHIPPED, project / "old.yaml")
    replaced(project / SHIPPED, DROP_READ[0], DROP_READ[1])
    code, data = _diff(capsys, "old.yaml", SHIPPED, "--runs", "runs")
    assert code == 0 and not data["untold"]
    edit_lines(project / "runs/canonical/v1", lambda lines: lines[1].update(failure_mode="x"))
    replaced(project / "tools/write.py", "DESCRIPTION =", "DESCRIPTION = 'other' or")
    (project / "runs/failure_modes/tool_call_failure/state.jsonl").write_text("{}\n")
    code, data = _diff(capsys, "old.yaml", SHIPPED, "--runs", "runs")
    assert code == 1 and data["untold"] and not data["widens"]
    why = {item["run"]: item["untold"] for item in data["runs"]["cannot tell"]}
    assert len(why) == 4
    assert "description or schemas moved since the run was made" in why["runs/policy_gates/approval_given"]
    assert cli.main(["policy", "diff", "old.yaml", SHIPPED, "--runs", "runs"]) == 1
    out = capsys.readouterr().out
    assert "4 cannot be told" in out.split("\n")[0]
    assert out.endswith("whether anything else is widened cannot be told; that counts as if it were\n")


def test_an_overlay_that_is_gone_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "policy/overlays/approve_write.yaml").unlink()
    code, data = _diff(capsys, SHIPPED, SHIPPED, "--runs", "runs")
    (told,) = data["runs"]["cannot tell"]
    assert code == 1 and told["untold"].startswith(
        "policy/overlays/approve_write.yaml: the run's overlay is gone"
    )


def test_a_record_names_no_overlay_outside_the_project(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A foreign record decides which files are merged; it reaches none beyond the project."""
    (project.parent / "outside.yaml").write_text("on_deny: inform\n")
    for place in ("../outside.yaml", str(project.parent / "outside.yaml"), "x\0y"):
        edit_lines(
            project / "runs/policy_gates/approval_given",
            lambda lines, place=place: lines[0]["policy"]["files"][1].update(path=place),
            chain=True,
        )
        _, data = _diff(capsys, SHIPPED, SHIPPED, "--runs", "runs/policy_gates/approval_given")
        (told,) = data["runs"]["cannot tell"]
        assert "the run's overlay is gone" in told["untold"]


def test_a_run_from_code_is_not_under_a_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_lines(project / "runs/canonical/v1", lambda lines: lines[0]["policy"].update(files=[]), chain=True)
    _, data = _diff(capsys, SHIPPED, SHIPPED, "--runs", "runs")
    assert _runs(data, "not under this policy") == ["v1"]


def test_a_new_policy_that_names_no_tool_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(project / SHIPPED, project / "old.yaml")
    replaced(project / SHIPPED, DROP_READ[0], "allowed: [search, fetch, read, write, sumarize]")
    assert cli.main(["policy", "diff", "old.yaml", SHIPPED]) == 2
    assert "policy/v1.yaml:4:41: there is no tool named 'sumarize'" in capsys.readouterr().err
    # but an old one may name a tool that is gone since
    (project / "tools/summarize.py").unlink()
    replaced(project / SHIPPED, "write, sumarize]", "write]")
    assert cli.main(["policy", "diff", "old.yaml", SHIPPED]) == 0
    capsys.readouterr()
    # and the new one a tool of the project that no run has
    shutil.copy(ROOT / "tools/summarize.py", project / "tools")
    shutil.copy(project / "tools/read.py", project / "tools/look.py")
    replaced(project / SHIPPED, "write]", "write, look]")
    code, data = _diff(capsys, "old.yaml", SHIPPED, "--runs", "runs/policy_gates/approval_given")
    assert code == 1 and "look" in data["policies"]["changes"][0]["what"]
    assert _runs(data, "same") == ["approval_given"]


@pytest.mark.parametrize(
    ("place", "said"), [("nowhere", "there is no such folder"), ("tools", "holds no recorded run")]
)
def test_a_folder_without_runs_is_refused(place: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "diff", SHIPPED, SHIPPED, "--runs", place]) == 2
    assert said in capsys.readouterr().err
    assert cli.main(["policy", "diff", SHIPPED, SHIPPED, "--markdown", "--json"]) == 2


def test_runs_are_named_one_by_one_or_by_folder(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--runs", "runs/canonical/v1", "--runs", "runs/loop", "--runs", "runs/loop/wrap_up"]
    _, data = _diff(capsys, SHIPPED, SHIPPED, *words)
    below = sorted(path.name for path in (ROOT / "runs/loop").iterdir())
    assert _runs(data, "same") == ["v1", *below] and {"run_deadline", "wrap_up"} <= {*below}


def test_replay_under_another_policy_uses_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new = _new(tmp_path, DROP_READ)
    seen = [command(ROOT, capsys, monkeypatch, "replay", "--policy", new, "--jobs", jobs) for jobs in "12"]
    assert seen[0] == seen[1] and seen[0][0] == 1 and "tightening  runs/canonical/v1" in seen[0][1]
    assert "tightening  runs/code/depots" in seen[0][1]  # its own tool is none that this policy allows


# ---- in words --------------------------------------------------------------------------------------------


def test_the_verdict_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = _new(tmp_path, MORE_URLS, DROP_READ)
    _, data = _diff(capsys, SHIPPED, new, "--runs", "runs")
    other = JUDGED - len(data["runs"]["same"])
    assert other > len(data["runs"]["widening"]) > 0
    assert cli.main(["policy", "diff", SHIPPED, new, "--runs", "runs"]) == 1
    out = capsys.readouterr().out
    first = (
        f"policy diff: 1 widening, 1 tightening; {other} of {JUDGED} recorded runs decide otherwise,"
        f" {len(ELSEWHERE)} not under this policy"
    )
    assert " ".join(out.split()).startswith(first)
    assert (
        "widening  runs/policy_gates/pg1_off_allowlist_url\n"
        "  step 1 d0 fetch: deny url_allowlist (policy/v1.yaml#/url_allowlist) -> allow url_allowlist\n"
        "    (new.yaml#/url_allowlist/https:~1~1news.example~1)\n"
        "  0 decisions are the same before it, 0 decisions are hypothetical behind it; what the call would"
    ) in out
    assert 'such as fetch {"url":"https://news.example/"}' in out


def test_a_comment_for_a_pull_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = _new(tmp_path, MORE_URLS, DROP_READ)
    assert cli.main(["policy", "diff", SHIPPED, new, "--runs", "runs", "--markdown"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("### Policy diff: 1 widening, 1 tightening; ")
    assert '| `fetch {"url":"https://news.example/"}` |' in out
    assert f"`tachograph policy diff policy/v1.yaml {new} --runs runs`" in out
    assert "<summary>1 tightening</summary>" in out
    rows = [line for line in out.split("\n") if line.startswith("| `runs/")]
    _, data = _diff(capsys, SHIPPED, new, "--runs", "runs")
    flips = [item for group in ("widening", "tightening", "goes another way") for item in data["runs"][group]]
    assert len(rows) == len(flips)
    for row, item in zip(rows, flips, strict=True):
        assert f"`{item['run']}`" in row and row.rstrip("| ").endswith(str(item["behind"]))
