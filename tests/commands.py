"""Call the command line in this process."""

from __future__ import annotations

import pytest

from tachograph.cli.main import main

Capsys = pytest.CaptureFixture[str]  # the type of the fixture `capsys`


def exit_code(*words: str) -> int:
    """Return the exit code of `tachograph WORDS`."""
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def output_of(capsys: Capsys, *words: str, code: int = 0) -> pytest.CaptureResult[str]:
    """Return what `tachograph WORDS` prints, which has to end with an exit code."""
    capsys.readouterr()  # what was printed before is not output of it
    ended, printed = exit_code(*words), capsys.readouterr()
    assert ended == code, f"{words} ends with {ended} and says {printed.err}"
    return printed
