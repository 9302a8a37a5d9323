"""What a terminal shows of a run while it is under way holds no secret, nor a part of one."""

from __future__ import annotations

import io
import logging
from argparse import Namespace
from collections.abc import Iterator

import pytest

from tachograph.cli.commands.run import _approver
from tachograph.cli.progress import Progress, tell_model_errors
from tachograph.fail.errors import ModelError
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import LLMInput, LLMOutput
from tachograph.runtime.policy.policy import Policy
from tests.support import answer, perform, policy_data

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
KEY = "horse battery staple"


@pytest.fixture
def _handlers() -> Iterator[None]:
    logger = logging.getLogger("tachograph")
    before, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = before
    logger.setLevel(level)


def progress() -> tuple[Progress, io.StringIO]:
    stream = io.StringIO()
    made = Progress(stream, lambda text, _colour: text, 100)
    made.redactor = Redactor(["github_token"])
    return made, stream


def test_a_reply_is_shown_to_its_end_without_secrets() -> None:
    shown, stream = progress()

    def model(asked: LLMInput) -> LLMOutput:
        for letter in f"It is {TOKEN}, I was told by them.":
            shown.token(letter)
        return answer()

    perform(model, listeners=[shown])
    assert "It is <secret:github_token:1>, I was told by them." in stream.getvalue()


def test_a_reply_that_breaks_off_shows_no_part_of_a_secret() -> None:
    shown, stream = progress()

    def model(asked: LLMInput) -> LLMOutput:
        for letter in f"It is what I was told by all of them: {TOKEN[:30]}":
            shown.token(letter)
        raise ValueError("it broke off")

    perform(model, listeners=[shown])
    assert "It is what" in stream.getvalue() and "ghp" not in stream.getvalue()


def test_a_resumed_run_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    shown, stream = progress()
    shown.redactor = Redactor(())
    redact = {"kinds": ["github_token"], "env": ["SOME_KEY"]}
    _approver(Namespace(approve=None), Policy.from_dict(policy_data(redact=redact)), None, shown)
    for word in f"The key is {KEY} and the token is {TOKEN} and this is all that I know of it today .".split(
        " "
    ):
        shown.token(f"{word} ")
    assert "The key is <secret:env:1> and the token is <secret:github_token:1> and" in stream.getvalue()


@pytest.mark.usefixtures("_handlers")
def test_what_is_told_of_a_failure_of_a_model_holds_no_secret() -> None:
    stream = io.StringIO()
    tell_model_errors(stream, Redactor(["github_token"], [("api_key", KEY)]))

    def model(asked: LLMInput) -> LLMOutput:
        raise ModelError(f"the key {KEY} and {TOKEN} are refused")

    perform(model)
    assert (
        stream.getvalue()
        == "tachograph: the key <secret:api_key:1> and <secret:github_token:1> are refused\n"
    )
