"""Call the command line in this process."""

from __future__ import annotations

import pytest

from tachograph.cli.main import main


def exit_code(*words: str) -> int:
    """Return the exit code of `tachograph WORDS`."""
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert isinstance(ended.value.code, int)
    return ended.value.code
