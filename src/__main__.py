"""The process of the command: `tachograph`, `python -m tachograph`."""

import os
import sys
from io import TextIOWrapper


def process() -> None:
    """Run the command and end the process at once.

    Nothing is taken down piece by piece, which costs as much as a short command does: what a run has written is on the
    disk, and a thread that a stopped tool left behind is not waited for.
    """
    code: object = 1
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what a terminal cannot show is escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        from .cli.main import main  # which takes a while, and may be interrupted

        main()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
        if sys.stderr is not None:
            sys.stderr.write("tachograph: stopped\n")
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None if it was closed from the beginning
        try:
            stream.flush()
        except BrokenPipeError:
            pass  # nobody reads it any more
        except (OSError, ValueError):
            code = code or 1  # what was printed is lost
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    process()
