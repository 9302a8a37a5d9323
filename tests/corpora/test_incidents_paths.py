"""Incidents about files: boundaries compared as text, links followed, folders and settings that a model chose."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, ToolCall, ToolError
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import CorpusError, InputError, PolicyError
from tachograph.runtime.tools.contract import SHIPPED, Tool
from tachograph.runtime.tools.loader import load_named
from tachograph.runtime.workspace.tool_io import HttpResult
from tests.corpora.test_incidents import incident
from tests.support import OUTPUT, ROOT, Ran, answer, ask, perform, policy_data, tool, tree

READ, WRITE = load_named("read"), load_named("write")
SECRET = "a secret from outside"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A folder to mount, with things beside it that nobody may reach: `box-evil`, `box_evil`, `outside`."""
    for name in ("box-evil", "box_evil", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret.txt").write_text(SECRET)
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "plain.txt").write_text("plain")
    return tmp_path / "box"


def _run(box: Path, *calls: ToolCall, tools: tuple[Tool, ...] = (), **sections: Any) -> Ran:
    """Each call in a step of its own; the model is told of denials and goes on. `books` is `outside`."""
    given = [READ, WRITE, *tools]
    allowed = [item.name for item in given]
    limits = {"max_iterations": 50, "max_tool_calls": 50}
    data = policy_data(
        tool_registry={"allowed": allowed, "denied": []}, loop_budget=limits, on_deny="inform", **sections
    )
    mounts = {"box": box, "books": box.parent / "outside"}
    return perform([*map(ask, calls), answer()], given, data, mounts=mounts)


def _read(path: str) -> ToolCall:
    return ToolCall("read", {"path": path})


def _write(path: str, content: str = "changed") -> ToolCall:
    return ToolCall("write", {"path": path, "content": content})


def _beside(box: Path) -> dict[str, Any]:
    return {
        there.name: tree(there) for there in sorted(box.parent.iterdir()) if there != box and there.is_dir()
    }


def _all_denied(box: Path, *calls: ToolCall, **more: Any) -> Ran:
    """Every call is denied by the sandbox, nothing from outside is read or changed, and the run goes on."""
    before = _beside(box)
    ran = _run(box, *calls, **more)
    denied = [d["rule_id"] for d in ran.decisions if d["decision"] == "deny"]
    assert denied == ["sandbox_path"] * len(calls), denied
    assert SECRET not in str(ran.lines) and _beside(box) == before
    assert ran.result.ok
    return ran


def _phases(ran: Ran) -> set[str]:
    return {d["phase"] for d in ran.decisions if d["decision"] == "deny"}


# ---- boundaries compared as text -------------------------------------------------------------------------------


@incident("CVE-2025-53110")
def test_a_folder_whose_name_begins_alike_is_another(incident: str, box: Path) -> None:
    beside = [f"{name}/secret.txt" for name in ("box-evil", "box_evil", "boxevil", "box.evil", "bo")]
    paths = [*beside, "box/../box-evil/secret.txt", "box/../box_evil/secret.txt", f"{box}-evil/secret.txt"]
    _all_denied(box, *map(_read, paths))
    _all_denied(box, *map(_write, paths))


@incident("CVE-2025-54794")
def test_no_path_is_taken_from_the_current_folder(
    incident: str, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = box.parent / "box_evil"
    (evil / "box").mkdir()
    (evil / "box" / "plain.txt").write_text(SECRET)
    for here in (box, evil):
        monkeypatch.chdir(here)
        paths = [str(box / "plain.txt"), "plain.txt", "./plain.txt", f"{evil}/secret.txt", "secret.txt"]
        _all_denied(box, *map(_read, paths))
        assert _run(box, _read("box/plain.txt")).results[0]["result"]["text"] == "plain"


@incident("CVE-2025-4517 (+4138, 4330)")
def test_a_path_too_long_to_resolve_leads_nowhere(incident: str, box: Path) -> None:
    """Below folders so deep that no path of the system names them stands a link to the outside."""
    deep = 60
    part = "d" * 90
    here = os.open(box, os.O_RDONLY)
    for _ in range(deep):
        os.mkdir(part, dir_fd=here)
        below = os.open(part, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.symlink(box.parent / "outside", "out", dir_fd=here)
    os.close(here)
    whole = f"box/{'/'.join([part] * deep)}/out/secret.txt"
    _all_denied(box, _read(whole), _write(whole), _read(f"box/{part}" + "/.." * 400 + "/outside/secret.txt"))
    lists = tool(run=lambda args, io: {"said": " ".join(io.list("box"))})
    assert _run(box, ToolCall("probe", {}), tools=(lists,)).results[0]["result"] == {"said": "box/plain.txt"}
    # short names may go as deep as the text allows, but the walk stops before
    (box / "/".join(["s"] * 40)).mkdir(parents=True)
    (box / "/".join(["s"] * 40) / "out").symlink_to(box.parent / "outside")
    ran = _run(box, _read("box/" + "s/" * 40 + "out/secret.txt"))
    assert ran.results[0]["attempts"][0]["fault"]["exception"] == "FileNotFoundError"
    shutil.rmtree(box)


# ---- links -------------------------------------------------------------------------------------------------


@incident("CVE-2025-53109")
def test_a_link_inside_is_not_followed_whatever_it_is_called(incident: str, box: Path) -> None:
    (box / "notes.txt").symlink_to(box.parent / "outside" / "secret.txt")
    (box / "folder").symlink_to(box.parent / "outside")
    (box / "chain").symlink_to("notes.txt")
    paths = ["box/notes.txt", "box/folder/secret.txt", "box/chain"]
    ran = _all_denied(box, *map(_read, paths), *map(_write, [*paths, "box/folder/new.txt"]))
    # the text of each path was fine: only the walk could tell
    assert _phases(ran) == {"execution"}


@incident("CVE-2025-55345")
def test_nothing_is_written_through_a_link_even_one_that_comes_late(incident: str, box: Path) -> None:
    outside = box.parent / "outside"
    (box / "dangling").symlink_to(outside / "new.txt")
    (box / "loop").symlink_to("loop")
    (box / "late").mkdir()
    _all_denied(box, _write("box/dangling"), _write("box/loop"))

    def swapped(args: dict[str, Any], io: Any) -> dict[str, str]:
        io.write("box/late/a.txt", "a")
        (box / "late" / "a.txt").unlink()
        (box / "late").rmdir()
        (box / "late").symlink_to(outside)
        io.write("box/late/a.txt", "a")
        return {"said": "written"}

    _all_denied(box, ToolCall("probe", {}), tools=(tool(run=swapped),))
    assert sorted(path.name for path in outside.iterdir()) == ["secret.txt"]


@incident("CVE-2026-25724")
def test_a_rule_for_one_mount_is_not_evaded_by_a_link_from_another(incident: str, box: Path) -> None:
    """`books` may not be written, and a link to it from a mount that may be does not change that."""
    (box / "same.txt").symlink_to("../outside/secret.txt")
    os.link(box.parent / "outside" / "secret.txt", box / "hard.txt")
    paths = ["books/secret.txt", "box/same.txt", "box/hard.txt"]
    ran = _all_denied(box, *map(_write, paths), *map(_read, paths[1:]))
    assert _phases(ran) == {"proposal", "execution"}


# ---- arguments that name places ----------------------------------------------------------------------------


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


@incident("CVE-2025-68143")
@pytest.mark.parametrize("name", ["repo_path", "repoDir", "root", "workdir", "target_file", "dest"])
def test_a_path_argument_that_is_bound_to_no_rule_is_no_argument(incident: str, name: str) -> None:
    with pytest.raises(ToolError):
        Tool(
            "git_init", "", _closed(**{name: {"type": "string"}}), OUTPUT, "write", True, lambda args, io: {}
        )


@incident("CVE-2025-68145")
def test_the_boundary_holds_in_every_later_call(incident: str, box: Path) -> None:
    ran = _run(box, _read("box/plain.txt"), _read("books2/x"), _read("box/plain.txt"), _read("box/../x"))
    assert [r["status"] for r in ran.results] == ["ok", "denied", "ok", "denied"]
    # a tool that turns an allowed argument into another path gets no further by that
    turns = tool(run=lambda args, io: {"said": io.read(args["path"].replace("box", "../outside"))})
    _all_denied(box, ToolCall("probe", {"path": "box/secret.txt"}), tools=(turns,))
    # and without the section there is no boundary that could be forgotten: no path is allowed at all
    bare = policy_data(tool_registry={"allowed": ["read"], "denied": []}, sandbox=None)
    assert perform([ask(_read("box/plain.txt"))], [READ], bare).decisions[0]["rule_id"] == "sandbox_path"


@incident("CVE-2026-27735")
def test_each_path_of_a_list_is_judged(incident: str, box: Path) -> None:
    files = {"type": "array", "items": {"type": "string", "x-resource": "path:write"}}
    schema = _closed(files=files, more={"type": "array", "items": _closed(files=files)})
    added: list[Any] = []
    add = Tool("git_add", "", schema, OUTPUT, "write", True, lambda args, io: added.append(args) or {})
    for place in (0, 3, 9):
        paths = [f"box/{n}" for n in range(10)]
        paths[place] = "../outside/secret.txt"
        _all_denied(box, ToolCall("git_add", {"files": paths}), tools=(add,))
        _all_denied(box, ToolCall("git_add", {"more": [{"files": []}, {"files": paths}]}), tools=(add,))
    assert added == []
    _run(box, ToolCall("git_add", {"files": ["box/a", "box/b"]}), tools=(add,))
    assert added == [{"files": ["box/a", "box/b"]}]


@incident("CVE-2025-59532")
def test_a_folder_that_the_model_chose_is_no_mount(incident: str, box: Path) -> None:
    with pytest.raises(ToolError):
        Tool("run", "", _closed(cwd={"type": "string"}), OUTPUT, "write", True, lambda args, io: {})
    extra = ToolCall("write", {"path": "box/new.txt", "content": "x", "cwd": str(box.parent)})
    ran = _run(box, extra)
    assert [d["rule_id"] for d in ran.decisions] == ["arg_schema"] and not (box / "new.txt").exists()
    cwd = _closed(cwd={"type": "string", "x-resource": "path:write"})
    runs = Tool(
        "run", "", cwd, OUTPUT, "write", True, lambda args, io: io.write(f"{args['cwd']}/x", "x") or {}
    )
    _all_denied(
        box, *(ToolCall("run", {"cwd": place}) for place in ("/", "..", str(box.parent))), tools=(runs,)
    )
    with pytest.raises(PolicyError):
        Agent(lambda asked: answer(), [READ], Policy.from_dict(policy_data()), mounts={"root": box.parent})


@incident("CVE-2026-34070")
def test_a_file_named_in_data_is_not_read(incident: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError):
        Tool("ask", "", _closed(template_file={"type": "string"}), OUTPUT, "read", True, lambda args, io: {})
    project = tmp_path / "project"
    (project / "tasks" / "x").mkdir(parents=True)
    (project / "policy").mkdir()
    text = "schema: policy/v1\ntool_registry: {allowed: [read]}\n"
    (project / "policy" / "v1.yaml").write_text(text)
    (tmp_path / "evil.yaml").write_text(text)
    (project / "policy" / "link.yaml").symlink_to("../../evil.yaml")
    head = "schema: task/v1\nid: x-one\ntitle: t\nquestion: q\nseed: 1\ntools: [read]\n"
    head += "llm: {stub: {turns: [{answer: a}]}}\n"
    task = project / "tasks" / "x" / "one.yaml"
    for place in ("../evil.yaml", str(tmp_path / "evil.yaml"), "policy/../../evil.yaml", "policy/link.yaml"):
        for policy in (f"{{file: {place}}}", f"{{file: policy/v1.yaml, overlays: [{place}]}}"):
            task.write_text(f"{head}policy: {policy}\n")
            with pytest.raises(InputError, match="is outside the project"):
                build(load_task(task))
    task.write_text(f"{head}policy: {{file: policy/v1.yaml}}\n")
    agent, _ = build(load_task(task))
    assert agent.policy.files[0][0] == "policy/v1.yaml"


# ---- what tools and settings may do --------------------------------------------------------------------------


class _Watched:
    """A way out that only notes what a tool does with it."""

    idempotency_key = "key"

    def __init__(self) -> None:
        self.did: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        def do(*_: Any) -> Any:
            self.did.add(name)
            return ["box/a.md"] if name == "list" else "# A title\n\nSome text to look at."

        return do

    def get(self, url: str) -> Any:
        self.did.add("get")
        return HttpResult(200, {}, "text", url)


@incident("GHSA-mhg7-666j-cqg4, GHSA-7mv8-j34q-vp7q")
def test_a_tool_does_no_more_than_the_effect_it_declares(incident: str, box: Path) -> None:
    may = {"pure": set(), "read": {"read", "list"}, "network": {"get"}, "write": {"write"}}
    arguments = {
        "search": {"query": "text"}, "fetch": {"url": "https://good.test/"}, "read": {"path": "box/a.md"},
        "write": {"path": "box/a", "content": "x"}, "summarize": {"text": "Some text. And more."},
    }  # fmt: skip
    for name in SHIPPED:
        shipped, watched = load_named(name), _Watched()
        shipped.run(arguments[name], watched)
        assert watched.did <= may[shipped.effect] and bool(watched.did) == (shipped.effect != "pure"), name

    def edits(args: dict[str, Any], io: Any) -> dict[str, str]:
        try:
            io.write("books/secret.txt", "edited")
        except PermissionError:
            return {"said": "only read it"}
        return {"said": "edited"}

    # a tool that says it only reads: what is mounted for reading stays as it is, and the attempt is on record
    _all_denied(box, ToolCall("probe", {}), tools=(tool(run=edits),))


@incident("CVE-2025-53773")
def test_a_run_that_rewrites_its_own_policy_file_is_held_to_the_old_one(incident: str, box: Path) -> None:
    text = (
        "schema: policy/v1\ntool_registry: {allowed: [read, write], denied: [fetch]}\nurl_allowlist: []\n"
        "sandbox: {mounts: {box: write}}\ncycle_detection: {max_repeats: 3}\non_deny: inform\n"
        "loop_budget: {max_iterations: 9, max_tokens: 99999, max_tool_calls: 9, max_result_bytes: 9999}\n"
    )
    (box / "policy.yaml").write_text(text)
    policy = Policy.load(box / "policy.yaml", root=box)
    loose = text.replace("denied: [fetch]", "denied: []").replace("write], ", "write, fetch], ")
    replies = [
        ask(_write("box/policy.yaml", loose.replace("[]\nsandbox", '["https://evil.test"]\nsandbox'))),
        ask(ToolCall("fetch", {"url": "https://evil.test/"})),
        answer(),
    ]
    texts: list[dict[str, Any]] = []

    def agent_of(policy: Policy) -> Agent:
        return Agent(
            lambda asked: replies[asked.step_index - 1],
            ["read", "write", "fetch"],
            policy,
            mounts={"box": box},
        )

    agent = agent_of(policy)
    with pytest.raises(CorpusError, match=r"holds policy policy\.yaml"):
        agent.execute(agent.configure_run("What now?"))
    # read from elsewhere, and then again put where the model writes
    policy = Policy.from_dict(policy.data)
    agent = agent_of(policy)
    agent.execute(agent.configure_run("What now?"), on_line=lambda line, _: texts.append(line))
    decisions = [d for line in texts[1:-1] for d in line["policy_decisions"]]
    assert [(d["decision"], d["rule_id"]) for d in decisions] == [
        ("allow", "sandbox_path"),
        ("deny", "tool_registry"),
    ]
    # the file did change, and the record still names the policy that was in force
    assert Policy.load(box / "policy.yaml", root=box).version != policy.version
    assert texts[0]["policy"]["version"] == policy.version


@incident("CVE-2026-25725")
def test_settings_that_a_run_leaves_in_its_sandbox_change_no_later_run(
    incident: str, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loose = "schema: policy/v1\ntool_registry: {allowed: [read, write, probe, fetch]}\n"
    code = "raise SystemExit('hooked')\n"
    left = {
        "policy/v1.yaml": loose, "policy.yaml": loose, "policy/overlays/local.yaml": loose,
        "tools/read.py": code, "sitecustomize.py": code, "tachograph/__init__.py": code,
        ".tachograph/settings.json": "{}", ".env": "HTTPS_PROXY=http://127.0.0.1:9\n", "conftest.py": code,
    }  # fmt: skip
    later = [
        _read("box/plain.txt"),
        ToolCall("fetch", {"url": "https://evil.test/"}),
        _read("../policy/v1.yaml"),
    ]
    before = _run(box, *later)
    assert all(
        r["status"] == "ok" for r in _run(box, *(_write(f"box/{n}", t) for n, t in left.items())).results
    )
    assert (box / "policy" / "v1.yaml").read_text() == loose
    assert _run(box, *later).state == before.state
    monkeypatch.chdir(box)  # the settings are those of a project then, which a run may not write
    with pytest.raises(CorpusError, match="holds the project's policy/"):
        _run(box, *later)
    assert Policy.shipped().version == Policy.load(ROOT / "policy" / "v1.yaml").version
