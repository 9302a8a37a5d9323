"""A policy at a revision: what is read, what is refused, and that nothing of the repository is started for it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tachograph.fail.errors import InputError
from tachograph.review import revisions
from tachograph.review.revisions import policy_at

HERE = Path(__file__).parent
BASE = "schema: policy/v1\ntool_registry: {allowed: [%s]}\n"
LESS = "extends: base.yaml\nloop_budget: {max_tokens: 5}\n"
MINE = {
    "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/dev/null",
    "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e",
}  # fmt: skip


def git(folder: Path, *words: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env=MINE, check=check, capture_output=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.decode().strip()


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "c")
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a project in a folder: `old` in HEAD~1, `new` in HEAD, `now` in the working tree."""
    root = tmp_path / "all"
    policies = root / "proj" / "policy"
    policies.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (policies / "v1.yaml").write_text(LESS)
    (root / "-r").write_text(BASE % "odd")
    for word in ("old", "new"):
        (policies / "base.yaml").write_text(BASE % word)
        commit(root)
    (policies / "base.yaml").write_text(BASE % "now")
    monkeypatch.chdir(root / "proj")
    return root


def allowed(text: str, beside: str | None = None) -> str:
    policy = policy_at(text, Path(beside) if beside else None)
    (word,) = policy.data["tool_registry"]["allowed"]
    places = (policy.file, policy.place("/tool_registry"), policy.place("/loop_budget"))
    assert places == ("policy/v1.yaml", "policy/base.yaml#/tool_registry", "policy/v1.yaml#/loop_budget")
    return str(word)


@pytest.mark.parametrize(
    ("folder", "text", "beside", "found"),
    [
        ("proj", "policy/v1.yaml", None, "now"),
        ("proj", "HEAD:proj/policy/v1.yaml", None, "new"),
        ("proj", "HEAD~1:./policy/v1.yaml", None, "old"),
        (".", "HEAD~1:proj/policy/v1.yaml", None, "old"),
        ("proj/policy", "HEAD~1:proj/policy/v1.yaml", None, "old"),
        ("proj/policy", "main:../policy/v1.yaml", None, "new"),
        ("proj", "HEAD~1", "policy/v1.yaml", "old"),
        ("proj/policy", "main^{tree}", "../../proj/policy/v1.yaml", "new"),
        (".git", "HEAD~1:proj/policy/v1.yaml", None, "old"),
    ],
)
def test_what_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch, folder: str, text: str, beside: str | None, found: str
) -> None:
    monkeypatch.chdir(root / folder)
    if folder != ".git":  # around which there is no project
        assert allowed(text, beside) == found
    else:
        assert policy_at(text).data["tool_registry"]["allowed"] == [found]


def test_a_file_wins(root: Path) -> None:
    git(root, "tag", "v1.yaml", "HEAD~1")
    Path("v1.yaml").write_text(BASE % "file")
    assert policy_at("v1.yaml", Path("policy/v1.yaml")).data["tool_registry"]["allowed"] == ["file"]
    Path("v1.yaml").unlink()
    assert allowed("v1.yaml", "policy/v1.yaml") == "old"


def test_the_file_at_the_other_side_may_be_named_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert allowed("HEAD~1", str(tmp_path / "link/proj/policy/v1.yaml")) == "old"


def test_a_name_like_an_option_is_a_name(root: Path) -> None:
    assert policy_at("HEAD:-r").data["tool_registry"]["allowed"] == ["odd"]


def test_the_environment_and_settings_of_the_user_count_for_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[broken")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_WORK_TREE", "GIT_CONFIG_COUNT", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, str(tmp_path / ".gitconfig"))
    git(root, "config", "include.path", "~/.gitconfig")
    assert allowed("HEAD~1:proj/policy/v1.yaml") == "old"


def test_an_object_has_no_replacement(root: Path) -> None:
    git(root, "replace", "HEAD~1", "HEAD")
    git(root, "replace", git(root, "rev-parse", "HEAD:proj/policy/v1.yaml"), "HEAD:proj/policy/base.yaml")
    assert allowed("HEAD~1:proj/policy/v1.yaml") == "old"
    assert git(root, "show", "HEAD~1:proj/policy/v1.yaml") == (BASE % "new").strip()


FILE = "HEAD~1:proj/policy/v1.yaml"
# settings, of which CANARY is a program, and a command that proves that they would start it
TRAPS: dict[str, tuple[dict[str, str], list[str]]] = {
    "filter": ({"filter.trap.smudge": "CANARY"}, ["cat-file", "--filters", FILE]),
    "filter_process": ({"filter.trap.process": "CANARY"}, ["cat-file", "--filters", FILE]),
    "textconv": ({"diff.trap.textconv": "CANARY"}, ["cat-file", "--textconv", FILE]),
    "diff": ({"diff.external": "CANARY"}, ["diff", "HEAD"]),
    "fsmonitor": ({"core.fsmonitor": "CANARY"}, ["status"]),
    "hooks": ({"core.hooksPath": "HOOKS"}, ["checkout", "-q", "HEAD"]),
    "alias": (
        {f"alias.{word}": "!CANARY" for word in ("cat-file", "ls-tree", "rev-parse", "trap")},
        ["trap"],
    ),
}
LAZY: dict[str, dict[str, str]] = {
    "uploadpack": {"remote.origin.uploadpack": "CANARY", "protocol.file.allow": "always"},
    "ssh": {"remote.origin.url": "ssh://none.test/a", "core.sshCommand": "CANARY"},
    "ext": {"remote.origin.url": "ext::CANARY", "protocol.ext.allow": "always"},
    "helper": {"remote.origin.vcs": "none", "alias.remote-none": "!CANARY"},
    "helper_without_a_name": {"remote.origin.url": "::none", "alias.remote-": "!CANARY"},
}


def lay(root: Path, settings: dict[str, str]) -> Path:
    """Set traps in a repository, and return the file that one of them writes."""
    canary, program, hooks = root.parent / "canary", root.parent / "program", root.parent / "hooks"
    program.write_text(f"#!/bin/sh\necho >> '{canary}'\nexit 1\n")
    program.chmod(0o755)
    hooks.mkdir()
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        (hooks / hook).symlink_to(program)
    (root / ".git" / "info" / "attributes").write_text("* filter=trap diff=trap\n")
    for name, value in settings.items():
        git(root, "config", name, value.replace("CANARY", str(program)).replace("HOOKS", str(hooks)))
    return canary


@pytest.mark.parametrize("trap", TRAPS)
def test_settings_start_nothing(root: Path, trap: str) -> None:
    settings, springs = TRAPS[trap]
    canary = lay(root, settings)
    assert allowed(FILE) == "old"
    assert not canary.exists()
    git(root, *springs, check=False)
    assert canary.exists()


@pytest.mark.parametrize("version", ["old_git", "new_git"])
@pytest.mark.parametrize("trap", LAZY)
def test_what_a_partial_clone_lacks_is_not_fetched(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str, version: str
) -> None:
    for name in ("allowFilter", "allowAnySHA1InWant"):
        git(root, "config", f"uploadpack.{name}", "true")
    git(tmp_path, "clone", "-q", "-n", "--filter=blob:none", root.as_uri(), "part")
    canary = lay(tmp_path / "part", LAZY[trap])
    monkeypatch.chdir(tmp_path / "part")
    if version == "old_git":
        monkeypatch.delitem(revisions._ENVIRONMENT, "GIT_NO_LAZY_FETCH")
    with pytest.raises(InputError) as refused:
        policy_at(FILE)
    assert str(refused.value).startswith(f"{FILE}: ") and len(str(refused.value).splitlines()) == 1
    assert not canary.exists()
    git(tmp_path / "part", "cat-file", "-p", FILE, check=False)
    assert canary.exists()


NOWHERE = "none.yaml none:proj/policy/v1.yaml :proj/policy/v1.yaml --help:proj/policy/v1.yaml "
NOWHERE += "HEAD:policy/v1.yaml HEAD:proj/policy/*.yaml HEAD:proj/policy/late.yaml "
NOWHERE += "HEAD:proj/policy/sub/v1.yaml HEAD:proj/links/v1.yaml"
NO_FILES = "HEAD HEAD: HEAD:. HEAD:../v1.yaml HEAD:../../v1.yaml HEAD:proj/policy/zero.yaml"
ERRORS = [
    *((text, None, f"{text}: ") for text in NOWHERE.split()),
    *((text, None, "HEAD:") for text in NO_FILES.split()),
    *((text, "policy/v1.yaml", f"{text}: ") for text in ("none", "--all")),
    ("HEAD", "/dev/null", "HEAD:"),
    ("HEAD:proj/policy/", None, "HEAD:proj/policy: folder"),
    ("HEAD:proj/policy/link.yaml", None, "HEAD:proj/policy/link.yaml: link"),
    ("HEAD:proj/policy/sub", None, "HEAD:proj/policy/sub: submodule"),
    ("HEAD:proj/policy/large.yaml", None, "HEAD:proj/policy/large.yaml: 1048576"),
    ("HEAD:proj/policy/broken.yaml", None, "HEAD:proj/policy/broken.yaml:2:"),
    ("HEAD:./policy/of_broken.yaml", None, "HEAD:proj/policy/broken.yaml:2:"),
    ("HEAD:proj/policy/of_late.yaml", None, "HEAD:proj/policy/late.yaml: "),
    ("HEAD:proj/policy/of_outer.yaml", None, "HEAD:outer.yaml:1:"),
    ("HEAD:proj/policy/endless.yaml", None, "HEAD:proj/policy/endless.yaml:1:"),
]


@pytest.mark.parametrize(("text", "beside", "said"), ERRORS, ids=[text for text, *_ in ERRORS])
def test_what_is_refused(root: Path, text: str, beside: str | None, said: str) -> None:
    policies = root / "proj" / "policy"
    for name, content in {
        "large": "#" * (1 << 20) + "\n",
        "broken": "schema: policy/v1\nlop_budget: {}\n",
        "of_broken": "extends: broken.yaml\n",
        "of_late": "extends: late.yaml\n",
        "of_outer": "extends: ../../outer.yaml\n",
        "endless": "extends: endless.yaml\n",
        "zero": 'extends: "\\0"\n',
    }.items():
        (policies / f"{name}.yaml").write_text(content)
    (root / "outer.yaml").write_text("schema: policy/v2\n")
    (policies / "link.yaml").symlink_to("v1.yaml")
    (root / "proj" / "links").symlink_to("policy")
    git(root, "add", "--all")
    submodule = f"160000,{git(root, 'rev-parse', 'HEAD')},proj/policy/sub"
    git(root, "update-index", "--add", "--cacheinfo", submodule)
    git(root, "commit", "-q", "-m", "c")
    (policies / "late.yaml").write_text(BASE % "late")
    with pytest.raises(InputError) as refused:
        policy_at(text, Path(beside) if beside else None)
    start, place, word = said.rpartition(": ")
    assert str(refused.value).startswith(start + place) and word in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1 and refused.value.exit_code == 2


def test_where_git_cannot_read(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(revisions._ENVIRONMENT, "GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        with pytest.raises(InputError, match="ownership") as refused:
            policy_at(FILE)
        assert refused.value.remedy and len(str(refused.value).splitlines()) == 1
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(InputError, match="installed"):
            policy_at(FILE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="repository"):
        policy_at(FILE)
