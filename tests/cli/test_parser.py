"""The table of commands, the suggestions for a misspelt word, and what is imported for a command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tachograph.cli import main as command_line
from tachograph.cli.commands import COMMANDS
from tachograph.cli.parser import make_parser, parser_of
from tests.support import ROOT, environment


def test_the_table_names_what_the_modules_add() -> None:
    """Each module is asked for all that it adds: no command that `--help` does not list, and none that is not there."""
    for name, (module, text) in COMMANDS.items():
        alone = make_parser([name])
        below = [other for other, (where, _) in COMMANDS.items() if where == module]
        if module:
            assert parser_of(alone, name).description == text
            assert parser_of(alone, name).get_default("act").__module__ == f"tachograph.cli.commands.{module}"
            parent = parser_of(alone, "policy" if module.startswith("policy.") else "")
            (choices,) = (action.choices for action in parent._actions if isinstance(action.choices, dict))
            assert {*choices} - {"policy"} == {other.split()[-1] for other in below}


def test_help_lists_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command has one line, whatever the length of its name."""
    assert command_line.main([]) == 0
    lines = [line.split() for line in capsys.readouterr().out.split("\n")]
    assert all([name, *text.split()] in lines for name, (_, text) in COMMANDS.items() if " " not in name)
    with pytest.raises(SystemExit):
        command_line.main(["policy", "--help"])
    lines = [line.split() for line in capsys.readouterr().out.split("\n")]
    below = {name.split()[1]: text for name, (_, text) in COMMANDS.items() if " " in name}
    assert all([name, *text.split()] in lines for name, text in below.items())


REFUSED = {
    "shw": "'shw': there is no such command; did you mean `show`?",
    "xyz": "'xyz': there is no such command; `tachograph --help` lists them",
    "policy chek": "'chek': there is no such command; did you mean `policy check`?",
    "policy xyz": "'xyz': there is no such command; `tachograph policy --help` lists them",
    "--verison": "--verison: `tachograph` has no such option; did you mean `--version`?",
    "show x --jsno": "--jsno: `tachograph show` has no such option; did you mean `--json`?",
    "policy check --overlays=y": "--overlays: `tachograph policy check` has no such option; did you mean `--overlay`?",
    "show a b c": "'c': is one argument too many; `tachograph show --help` says what it takes",
    "show": "the following arguments are required: RUN; `tachograph show --help` says what it takes",
    "policy": "the following arguments are required: WHAT; `tachograph policy --help` says what it takes",
    "sho\x1bw": "'sho\\x1bw': there is no such command; did you mean `show`?",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused_is_one_line_that_names_what_was_meant(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(words.split(" ")) == 2
    said = capsys.readouterr()
    assert said.err == f"tachograph: {REFUSED[words]}\n" and said.out == ""


@pytest.mark.parametrize("words", [["--help"], ["policy", "--help"], ["--version"], ["shw"]], ids=" ".join)
def test_help_imports_no_command(words: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {words}\nfrom tachograph.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    )
    loaded = done.stderr.split()
    rooms = {"runtime", "evidence", "review", "views", "tracing", "scaffold"}
    assert not {
        f"tachograph.{room}" for room in rooms - ({"runtime", "evidence"} if words == ["shw"] else set())
    } & {*loaded}
    assert not {"yaml", "jsonschema", "dataclasses", "shutil", "typing_extensions"} & {*loaded} or words == [
        "shw"
    ]
    assert [name for name in loaded if name.startswith("tachograph.cli.commands.")] == []
