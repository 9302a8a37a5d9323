"""The command line: parse, call, print, exit code.

Exit codes: 0 done, or as the task expects; 1 any other ending, drift, a missed expectation or an external call
that no record answers; 2 bad input or a
place that cannot be written to; 3 suspended, `resume` goes on; 130 and 143 ended by a signal.
"""

from __future__ import annotations

import sys

try:
    import argparse
    import contextlib
    import errno
    import functools
    import gc
    import os
    import signal
    import threading
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import Final

    from ..fail.errors import (
        EffectNotRecorded,
        ExpectationError,
        InputError,
        Interrupted,
        OutputError,
        StoppedBySignal,
        Suspended,
    )
    from .parser import parse
except KeyboardInterrupt:  # before anything was begun
    sys.stderr.write("tachograph: interrupted\n")
    raise SystemExit(130) from None

_RUNS: Final = ("run", "resume")  # they attend to signals themselves while a run is under way


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    Without `argv` this process is the command's own, and a run that is kept in a journal gets a process below it.
    """
    if argv is not None:
        return _main(argv, own_process=False)
    gc.disable()  # nearly all that start-up makes is kept: looking through it takes a tenth of a short command
    try:
        return _main(sys.argv[1:], own_process=True)
    finally:
        gc.freeze()  # the process ends, and looks through nothing once more


def _main(argv: Sequence[str], *, own_process: bool) -> int:
    try:
        options = _parsed(argv)
    except KeyboardInterrupt:
        print("tachograph: interrupted", file=sys.stderr)
        return 130
    if isinstance(options, int):
        return options
    options.attended = functools.partial(_attended, options)
    options.supervised = own_process
    if own_process:
        gc.freeze()
        gc.enable()
    return _attended(options, lambda: options.act(options))


def _attended(options: argparse.Namespace, act: Callable[[], int]) -> int:
    """Return the exit code of what a command does; errors and signals are told on one line."""
    came: list[int] = []
    try:
        code = _told(options, act, came)
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):  # once more, when all is over
            if not came or _how_to_resume(options):
                print(f"tachograph: interrupted{_how_to_resume(options)}", file=sys.stderr)
        code = 130
    except SystemExit as left:  # SIGTERM once more, while a run was stopped by it
        if left.code != 128 + signal.SIGTERM:
            raise
        if remedy := _how_to_resume(options):
            print(f"tachograph: interrupted{remedy}", file=sys.stderr)
        return 128 + signal.SIGTERM
    return 128 + came[0] if came and code in (0, 130) else code


def _how_to_resume(options: argparse.Namespace) -> str:
    """Return how a run that was left at once goes on, if it was kept in a journal."""
    recorded = getattr(options, "recorded", None)
    if recorded is None or not os.path.isfile(f"{recorded}.partial/journal.jsonl"):
        return ""
    return f"; go on with `tachograph resume {_escaped(str(recorded), 400)}`"


def _escaped(text: str, limit: int) -> str:
    """Return text of others, safe to show at a terminal and cut at `limit` characters."""
    try:  # imported for errors only: `--help` loads nothing of the runtime
        from ..runtime.formats.escape import escape_terminal
    except OSError:  # as where no file can be opened any more
        return ascii(text)[1:-1][:limit]
    return escape_terminal(text, limit)


def _parsed(argv: Sequence[str]) -> argparse.Namespace | int:
    """Return what a command line asks for, or the exit code where it cannot be read."""
    _fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # no text file: a caller's own
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        return parse(argv)
    except InputError as error:
        print(f"tachograph: {_escaped(str(error), 1000)}", file=sys.stderr)
        return 2
    except OSError as error:  # of an import
        return _system_refused(error)


def _told(options: argparse.Namespace, act: Callable[[], int], came: list[int]) -> int:
    """Return the exit code of what a command does; signals that came are added to `came`."""
    try:
        with _sigterm_as_ctrl_c(options.command, came):
            code = act()
            sys.stdout.flush()
        return code
    except ExpectationError as error:
        return _missed(options, error)
    except Suspended as error:
        print(f"tachograph: suspended: {_escaped(str(error), 1000)}", file=sys.stderr)
        return 128 + error.signum if isinstance(error, StoppedBySignal) else 3
    except EffectNotRecorded as error:
        print(f"tachograph: {_escaped(str(error), 1000)}", file=sys.stderr)
        return 1
    except (InputError, OutputError) as error:
        print(f"tachograph: {_escaped(str(error), 1000)}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"tachograph: no memory is left{_how_to_resume(options)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _drop_output()  # its reader left: nothing more to say
        return 1
    except OSError as error:
        return _system_refused(error)
    except ValueError:
        if not sys.stdout.closed:
            raise
        print(
            "tachograph: a tool closed the output; what was recorded stays, see `tachograph ls`",
            file=sys.stderr,
        )
        return 2


def _missed(options: argparse.Namespace, error: ExpectationError) -> int:
    """Print what a run missed of what its task expects, in one line where a signal ended it; return the exit code."""
    recorded = getattr(options, "recorded", None)
    stays = "the committed run stays; " if recorded is not None and recorded.is_dir() else ""
    kept = f"{stays}this one is kept in {_escaped(error.kept, 400)}"
    if isinstance(error.__cause__, Interrupted):
        print(f"tachograph: interrupted; {kept}; run the task again", file=sys.stderr)
        return 128 + error.__cause__.signum
    print("the run missed what its task expects:", file=sys.stderr)
    for line in error.differences:
        print(f"  {_escaped(line, 1000)}", file=sys.stderr)
    print(f"  {kept}", file=sys.stderr)
    return 1


def _system_refused(error: OSError) -> int:
    """Print what the system refused and why; return the exit code."""
    why = error.strerror or type(error).__name__
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "make room there" if full else "check what is there and its permission"
    message = f"{error.filename or 'the system refuses'}: {why}; {remedy}"
    if _output_fails():
        _drop_output()
        message = f"the output cannot be written ({why})"
    print(f"tachograph: {_escaped(message, 1000)}", file=sys.stderr)
    return 2


@contextlib.contextmanager
def _sigterm_as_ctrl_c(command: str | None, came: list[int]) -> Iterator[None]:
    """SIGTERM does what Ctrl-C would do at that moment, and is noted in `came`; not where someone else attends to it.

    So a run under way, which takes Ctrl-C over, gets SIGTERM too. Where Ctrl-C is ignored a run takes over SIGTERM
    alone, as it is.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    free = threading.current_thread() is threading.main_thread()
    if not free or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL or (ignored and command in _RUNS):
        yield
        return
    ours = os.getpid()

    def told(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != ours:  # a child that a tool forked
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        came.append(signum)
        attends = signal.getsignal(signal.SIGINT)
        if not callable(attends):
            raise KeyboardInterrupt
        attends(signum, frame)

    signal.signal(signal.SIGTERM, told)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _fill_closed_streams() -> None:
    """Put nothing where a caller closed a standard stream, so that no file of ours takes its number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, open(fd, "w" if fd else "r", encoding="utf-8", closefd=False))  # noqa: SIM115 - kept


def _output_fails() -> bool:
    """Return whether standard output takes nothing more: what could not be written is still to be."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return True
    return False


def _drop_output() -> None:
    """Let what is still to be printed go nowhere, so that nothing complains at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
