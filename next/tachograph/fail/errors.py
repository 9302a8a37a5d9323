"""The exception tree, drawn once.

    TachographError
    ├── InputError                what a person gave us is wrong: one line, exit 2, nothing written
    │   ├── PolicyError           a policy file or overlay
    │   ├── TaskError             a task file, its script, mounts or hosts
    │   ├── ToolError             a tool module that breaks the contract
    │   ├── CorpusError           a folder that a mount or a host points to
    │   ├── RecordError           a recorded run that cannot be read
    │   └── EffectNotRecorded     an external call that no record answers: exit 1
    ├── ModelError                raised by a model callable to say what kind of failure it met
    │   ├── TransientModelError   worth asking again (429, 5xx, overload, lost connection)
    │   └── InvalidModelOutput    the reply has no usable shape
    ├── Cancelled                 the run was told to stop, by code
    │   ├── Interrupted           the run was told to stop, by a signal
    │   ├── CallCancelled         one call was cancelled, and the run goes on
    │   └── DeadlineExceeded      the run's time is over
    ├── ReplayError               a run that asks for something else than its record answers
    ├── Suspended                 a run that cannot go on by itself; its journal stays, `resume` goes on
    │   ├── EffectInDoubt         an effect may have taken place when the process ended
    │   └── StoppedBySignal       a signal came, and the run is to go on later
    ├── ExpectationError          a run that missed what its task expects
    └── OutputError               a place to write to that cannot be used

A tool failure is data that the model reads, not an exception of this tree: tools raise builtins.
"""

from __future__ import annotations


class TachographError(Exception):
    """Base of everything that this package raises on purpose."""


class InputError(TachographError):
    """Bad input. `str()` is one line: `file:line:column: what is wrong; what to do`.

    `line` and `column` count from 1; either may be None where a file has no such place.
    """

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
        place = self.file or ""
        for number in (self.line, self.column):
            if place and number is not None:
                place += f":{number}"
        text = f"{place}: {self.message}" if place else self.message
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


class EffectNotRecorded(InputError):
    """An external call has no recorded result, and is not performed where a record stands."""


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

    `retry_after_ms` is what the provider asked for, or None.
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
    """A model answered with something that is no reply."""


class Cancelled(TachographError):
    """The run was cancelled by code."""


class CallCancelled(Cancelled):
    """One call of the run was cancelled by code; the run goes on."""


class Interrupted(Cancelled):
    """The run was cancelled by a signal; `signum` says which.

    `came` is False where foreign code raised KeyboardInterrupt and no signal came.
    """

    def __init__(self, signum: int, *, came: bool = True) -> None:
        self.signum = signum
        self.came = came
        super().__init__(f"signal {signum}")


class DeadlineExceeded(Cancelled):
    """The run's own deadline passed."""


class ReplayError(TachographError):
    """A run left its record. `step` says where; `what` is the position or field, or None."""

    def __init__(self, step: int, message: str, what: str | None = None) -> None:
        self.step = step
        self.what = what
        super().__init__(message)


class Suspended(TachographError):
    """A run stopped half-way. What it did is in its journal; `str()` is one line that says how to go on."""


class EffectInDoubt(Suspended):
    """An intent without an outcome: `call` is the id of the call, `tool` its name."""

    def __init__(self, message: str, call: str, tool: str) -> None:
        self.call = call
        self.tool = tool
        super().__init__(message)


class StoppedBySignal(Suspended):
    """A signal suspended a run that is kept in a journal; `signum` says which."""

    def __init__(self, message: str, signum: int) -> None:
        self.signum = signum
        super().__init__(message)


class ExpectationError(TachographError):
    """A run missed what its task expects. `differences` holds one line each, `kept` where the run lies."""

    def __init__(self, differences: list[str], kept: str) -> None:
        self.differences = differences
        self.kept = kept
        super().__init__("; ".join(differences))


class OutputError(TachographError):
    """A folder to write to cannot be used; the message names it and says what to do."""


def system_reason(error: BaseException) -> str:
    """Return the system's words for an error, such as `Permission denied`, or else the name of its type.

    For messages to people only: the words depend on the platform, so no record holds them.
    """
    return getattr(error, "strerror", None) or type(error).__name__


def asks_to_end(error: BaseException) -> bool:
    """Return whether an exception comes from a signal or from the runtime itself, and not from code of the project.

    Code of the project may raise any BaseException, one of its own included, and has failed then.
    """
    own = type(error).__module__.startswith(__name__.partition(".")[0] + ".")
    return isinstance(error, KeyboardInterrupt) or (own and not isinstance(error, Exception))
