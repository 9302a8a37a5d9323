"""The exception tree, drawn once.

    TachographError
    ├── InputError                what a person gave us is wrong: one line, exit 2, nothing written
    │   ├── PolicyError           a policy file
    │   ├── TaskError             a task file, its script, mounts or hosts
    │   ├── ToolError             a tool module that breaks the contract
    │   ├── CorpusError           a folder that a mount or a host points to
    │   └── RecordError           a recorded run that cannot be read
    ├── ModelError                raised by a model callable to say what kind of failure it met
    │   ├── TransientModelError   worth asking again (429, 5xx, overload, lost connection)
    │   └── InvalidModelOutput    the reply has no usable shape
    ├── NotRecorded               a log has no outcome of an effect that it is to answer for
    ├── SystemFailure             the disk is full, or the system lacks something else: the run cannot go on
    ├── ExpectationError          a run that missed what its task expects
    └── OutputError               a place to write to that cannot be used

Others stand where they are raised: `Damaged`, `Diverged` and `Leak` in runtime/log, `InDoubt` in runtime/driver.py,
`AnswerMismatch` in runtime/schema.

A tool failure is data that the model reads, not an exception of this tree: tools raise builtins, or `ToolFailure` with
words for the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

MAX_CLASS_NAME: Final = 100
MAX_SAID: Final = 300  # characters


class TachographError(Exception):
    """Base of everything that this package raises on purpose.

    Attributes:
        exit_code: What the command line ends with.
    """

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process makes it again, to raise it there: without its constructor, which takes parts."""
        return type(self).__new__, (type(self), *self.args), self.__dict__

    def lines(self) -> list[str]:
        """Return what the command line says, each line by itself."""
        return ["; ".join([str(self), *getattr(self, "__notes__", ())])]


class InputError(TachographError):
    """Bad input. `str()` is one line: `file:line:column: what is wrong; what to do`.

    Args:
        message: What is wrong.
        file: Where, or None.
        line: The line, from 1; None where the file has no such place.
        column: The column, likewise.
        remedy: What to do, or None.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.remedy = remedy
        super().__init__(message)

    def __str__(self) -> str:
        # what is no name of a file may be of any length
        place = ":".join(f"{it!s:.999}" for it in (self.file, self.line, self.column) if it is not None)
        text = f"{place}: {self.message}" if self.file else self.message
        return f"{text}; {self.remedy}" if self.remedy else text


class PolicyError(InputError):
    """A policy file or overlay is refused."""


class TaskError(InputError):
    """A task file, its script, its mounts or its hosts are refused."""


class ToolError(InputError):
    """A tool module breaks the tool contract."""


class CorpusError(InputError):
    """A folder behind a mount or a host is missing or unreadable."""


class RecordError(InputError):
    """A recorded run is missing, cut off or malformed."""


class ModelError(TachographError):
    """A model callable failed for good.

    `status` is the HTTP status that the service answered with, `service_text` its own message; each may be None. A
    record keeps both, the text after redaction.
    """

    def __init__(
        self, message: str = "", *, status: int | None = None, service_text: str | None = None
    ) -> None:
        self.status = status
        self.service_text = service_text
        super().__init__(message)


class TransientModelError(ModelError):
    """A model callable failed in a way that is worth another attempt.

    Args:
        message: What went wrong; it is in a warning, and in no record.
        retry_after_ms: The wait that the provider asked for, or None.
        status: The HTTP status, or None.
        service_text: What the service said, which the record holds without secrets, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        retry_after_ms: int | None = None,
        status: int | None = None,
        service_text: str | None = None,
    ) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__(message, status=status, service_text=service_text)


class InvalidModelOutput(ModelError):
    """A model answered with something that is not a reply."""


class ToolFailure(Exception):
    """Raised by a tool to say why it failed: the model reads its text, and the record holds it, without secrets."""


class NotRecorded(TachographError):
    """A log has no outcome of an effect that it is to answer for.

    Attributes:
        at: The address of the effect.
        task: The name of the task that is recorded anew; "" where a log is only read.
    """

    def __init__(self, at: str, task: str = "") -> None:
        self.at, self.task = at, task
        super().__init__(f"the log holds no result of {at}")

    def lines(self) -> list[str]:
        """Return what is missing, and how to have it."""
        again = f"`tachograph run {self.task} --again` makes all external effects of the task"
        how = f"one that is not there, or that failed, may have happened all the same; find out, and {again}"
        return [str(self), how] if self.task else [str(self)]


class SystemFailure(TachographError):
    """The disk is full, or the system lacks something else: the run cannot go on, and no tool or model has failed."""


class ExpectationError(TachographError):
    """A run missed what its task expects. `differences` holds one line each, `kept` where the run lies."""

    def __init__(self, differences: list[str], kept: str) -> None:
        self.differences = differences
        self.kept = kept
        super().__init__("; ".join(differences))

    def lines(self) -> list[str]:
        """Return the differences, and where the run lies."""
        how = f"the run misses what its task expects; `tachograph show {self.kept}` shows it"
        return [*self.differences, how]


class OutputError(TachographError):
    """A folder to write to cannot be used; the message names it and says what to do."""

    exit_code = 2


def line_in(error: BaseException, file: str) -> int | None:
    """Return the last line of a file that an exception came through, None where it came through none."""
    from traceback import walk_tb  # few runs come here; other functions there may call foreign code

    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if lines else None


def class_of(value: object) -> str:
    """Return the name of the class of an exception, or of any other value, in ASCII."""
    # not as an attribute, which the class of the class may answer for
    name: str = type.__dict__["__name__"].__get__(type(value))[:MAX_CLASS_NAME]
    return name if name.isascii() else name.encode("ascii", "backslashreplace").decode()


def text_of(error: BaseException, redact: Callable[[str], str]) -> str:
    """Return what an exception says: redacted, and cut."""
    try:
        return redact(str(error).encode("utf-8", "replace").decode())[:MAX_SAID]
    except BaseException as other:  # code of an exception runs here, and may raise anything
        if asks_to_end(other):
            raise
        return ""


def system_reason(error: BaseException) -> str:
    """Return the system's words for an error, such as `Permission denied`, or else the name of its type.

    For messages to people only: the words depend on the platform, so no record holds them.
    """
    return getattr(error, "strerror", None) or type(error).__name__


def asks_to_end(error: BaseException) -> bool:
    """Return whether an exception comes from a signal or from the system, and not from code of the project.

    Code of the project may raise any BaseException, one of its own included, and has failed then.
    """
    return isinstance(error, KeyboardInterrupt | SystemFailure)


def listed(given: Any, what: str) -> list[Any]:
    """Return what a person gave as a list. Raises InputError for what is none."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{what}: {class_of(given)} is no list", remedy="give a list")
    return list(given)


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the remedy for a name that nobody knows: the known name that is most like it, or else other words."""
    import difflib  # only for somebody's mistake

    likely = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {likely[0]!r}?" if likely else otherwise


def warn(words: str, *values: object, error: BaseException | None = None) -> None:
    """Tell people, through the logger `tachograph`, what no record holds, in a line that is harmless at a terminal.

    Args:
        words: The line, with `%s` for each value.
        *values: The values.
        error: What was raised; its traceback is told at the level DEBUG, as it is.
    """
    import logging  # slow to import, and few runs come here

    logger = logging.getLogger("tachograph")
    who = "" if logger.hasHandlers() else "tachograph: "  # a handler says by its format who speaks
    told = (it if it.isprintable() else f"\\u{{{ord(it):x}}}" for it in f"{who}{words}" % values)
    logger.warning("%s", "".join(told))
    if error is not None:
        logger.debug("how it came to that:", exc_info=error)


def warn_of(where: str, error: BaseException, redact: Callable[[str], str], more: str = "") -> None:
    """Tell people what foreign code raised, since a record holds its class alone; at the level DEBUG how it came to it.

    Args:
        where: What failed, or the file of a tool; the last line of it that the exception came through is added.
        error: The exception.
        redact: Replaces secrets in what it says.
        more: What else there is to say.
    """
    line, text = line_in(error, where), text_of(error, redact)
    place = where if line is None else f"{where}:{line}"
    warn("%s: %s%s%s", place, redact(class_of(error)), f": {text}" if text else "", more, error=error)
