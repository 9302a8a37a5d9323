"""The tutorial, done as it says: every file written, every command run, every output compared."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.providers.protocols import Turn
from tests.providers.servers import Server

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/tutorial.md"
_BLOCK = re.compile(r"(?:<!-- (\w+)(?:: (\S+))? -->\n)?```(\w+)\n(.*?)```", re.S)


@dataclass
class Block:
    """A fenced block: its language, what the comment before it says, its text."""

    what: str
    place: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for what, place, language, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        yield Block(what, place, language, text)


def fits(said: str, wanted: str) -> bool:
    """Whether an output is what the page shows; a line `...` stands for any lines, `...` for any text."""
    pattern = ""
    for line in wanted.split("\n"):
        text = ".*?".join(map(re.escape, line.split("...")))
        pattern += r"(?:.*\n)*?" if line == "..." else f"{text}\n"
    return re.fullmatch(pattern, said + "\n") is not None


class Reader:
    """Somebody who does what the page says, in a shell."""

    def __init__(self, place: Path, base_url: str) -> None:
        self._place = place
        self._base_url = base_url
        self._env = {
            **{key: value for key, value in os.environ.items() if key not in ("CI", "COLUMNS")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(place),
            **{
                f"GIT_{who}_{what}": "a@b.test"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def run(self, text: str) -> str:
        """What the commands print, both streams together."""
        script = []
        for line in text.replace("http://127.0.0.1:8080/v1", self._base_url).splitlines():
            command, mark, code = line.partition("  # exit ")
            script.append(f"code=0; {command} || code=$?; [ $code = {code if mark else 0} ] || exit 99")
        script.append("pwd > .place")
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=self._place,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (text, done.stdout)
        here = self._place / ".place"
        there = [*self._place.glob("*/.place")]
        place = there[0] if there else here
        self._place = Path(place.read_text().strip())
        place.unlink()
        return done.stdout

    def write(self, place: str, text: str) -> None:
        (self._place / place).write_text(text, encoding="utf-8")

    def edit(self, place: str, diff: str) -> None:
        file = self._place / place
        old, new = (
            "".join(f"{line[1:]}\n" for line in diff.splitlines() if line.startswith(sign)) for sign in "-+"
        )
        before = file.read_text(encoding="utf-8")
        lines = [line for line in before.splitlines() if line.startswith(old.rstrip("\n"))]
        assert len(lines) == 1, (old, before)
        file.write_text(before.replace(f"{lines[0]}\n", new), encoding="utf-8")


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    has_sdk = importlib.util.find_spec("openai") is not None
    turns = [
        Turn(calls=(("opening_hours", '{"depot": "south"}'),)),
        Turn(text="It opens at eight."),
    ]
    with Server(turns) as server:
        reader = Reader(tmp_path, server.base_url("openai"))
        said, skipped = "", False
        for block in blocks():
            if block.language == "sh":
                skipped = block.what == "live" and not has_sdk
                said = "" if skipped else reader.run(block.text)
            elif block.what == "file":
                reader.write(block.place, block.text)
            elif block.what == "edit":
                reader.edit(block.place, block.text)
            elif not skipped:
                assert block.language == "text", block
                assert fits(said.rstrip("\n"), block.text.rstrip("\n")), (said, block.text)


def test_an_output_that_is_another_is_noticed() -> None:
    assert fits("a\nb\nc", "a\n...\nc") and fits("a\nc", "a\n...\nc") and fits("ab", "a...")
    for said in ("a\nb\nd", "b\nc", "a\nb\nc\nd"):
        assert not fits(said, "a\n...\nc")
