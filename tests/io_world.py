"""What tests of `io` stand on: a small policy, mounts, a host, and a folder outside of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tachograph.runtime.formats.strict_json import canonical
from tachograph.runtime.io.tool_io import ToolIO
from tachograph.runtime.io.workspace import Host, Mount, Workspace
from tachograph.runtime.log.values import Fact
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.leaf import Question, Verdict
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import EFFECTS, Tool

CLOSED = {"type": "object", "additionalProperties": False}
TOOLS = {effect: Tool(effect, "", CLOSED, CLOSED, effect, lambda arguments, io: {}) for effect in EFFECTS}
MOUNTS = {"book": "read", "desk": "write", "unbound": "read"}
GATE = Gate(
    Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": list(TOOLS)},
            "url_allowlist": ["https://site.test/", "https://far.test/"],
            "sandbox": {"mounts": MOUNTS},
        }
    ),
    TOOLS.values(),
)
REDIRECTS = {
    "/old": "/docs/x.md", "/away": "https://evil.test/", "/loop": "/loop", "/odd": "https://[::1", "/nowhere": "",
    "/blank": "/docs/x.md /docs/x.md", "/tab": "/do\tcs/x.md", "/bare": "https:/docs/x.md",
    "/three": "///site.test/docs/x.md", "/wide": "https://site\u3002test/docs/x.md", "/folded": "/docs/caf\u00e9.md",
    "/kept": "../docs//x.md?", "/userinfo": "https://a@site.test/docs/x.md", "/file": "file:///etc/passwd",
    **{f"/hop{i}": f"/hop{i + 1}" for i in range(9)},
}  # fmt: skip


def decide(fact: Fact) -> Verdict:
    return GATE.ask(Question(fact, "network"))


class World:
    """A mount to read, one to write, a private one, a folder outside and a host."""

    def __init__(self, root: Path) -> None:
        self.book, self.desk, self.outside, self.site = (
            root / name for name in ("book", "desk", "outside", "site")
        )
        for folder in (self.book / "sub", self.desk / "sub", self.outside, self.site / "docs"):
            folder.mkdir(parents=True)
        (self.book / "a.md").write_text("text \u00e9")
        (self.book / "sub" / "b.md").write_text("b")
        (self.outside / "secret").write_text("secret")
        (self.site / "docs" / "x.md").write_text("page")
        self.reads: list[tuple[str, str]] = []
        self.answers: dict[str, tuple[int, dict[str, str], str]] = {}
        self.workspace = Workspace(
            {"book": Mount("read", self.book, "data/book"), "desk": Mount("write", self.desk)},
            {"site.test": Host(self.site, "hosts/site", REDIRECTS)},
            on_read=lambda path, sha256: self.reads.append((path, sha256)),
            network=True,
        )

    def io(self, effect: str = "network", decide: Callable[[Fact], Verdict] = decide) -> ToolIO:
        return ToolIO(self.workspace, TOOLS[effect], decide, "key")


def denied(io: ToolIO, act: Callable[[], object], fact: Fact) -> None:
    """`act` is refused for the tool, the denial is kept with its fact, and nothing works any more."""
    with pytest.raises(PermissionError) as refused:
        act()
    assert io.denied and io.met[-1] == fact and decide(fact).decision == "deny"
    assert "/" not in str(refused.value) and canonical(fact)
    met = list(io.met)
    for use in (lambda: io.read("book/a.md"), lambda: io.write("desk/x", "x"), lambda: io.list("book"),
                lambda: io.get("https://site.test/docs/x.md")):  # fmt: skip
        with pytest.raises(PermissionError):
            use()
    assert io.met == met and not io.wrote


def partial_of(io: ToolIO, access: str, path: str) -> Callable[[], object]:
    return (lambda: io.read(path)) if access == "read" else (lambda: io.write(path, "mine"))
