"""Several models in the place of one: the next is asked where the one before fails for good."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...fail.errors import InputError, listed
from .langchain_messages import ChatModel, is_chat_model
from .types import Model


class Fallback:
    """Models that are asked in turn. Every step begins with the first one.

    A model has failed when its attempts are used up, and at once for an error that is not worth another attempt. Each
    attempt is a line of the record.

    Args:
        models: Two models or more, each as an agent takes one.

    Attributes:
        models: The models.

    Raises:
        InputError: One of them cannot be had, or there are fewer than two.
    """

    def __init__(self, models: Iterable[Model | ChatModel | str]) -> None:
        given = listed(models, "the models of a Fallback")
        if len(given) < 2 or not all(map(is_model, given)):
            raise InputError("a Fallback needs two models or more", remedy="give a list of models")
        self.models: tuple[Model, ...] = tuple(model for it in given for model in models_of(it))


def is_model(value: Any) -> bool:
    """Return whether a value can be one model of an agent."""
    return isinstance(value, str) or callable(value) or is_chat_model(value)


def models_of(llm: Model | ChatModel | str | Fallback) -> tuple[Model, ...]:
    """Return the models that an agent asks, in order. Raises InputError for a name of which none can be had."""
    if isinstance(llm, Fallback):
        return llm.models
    if isinstance(llm, str):
        from .providers import model_of  # needs an SDK, which is an extra

        return (model_of(llm),)
    if is_chat_model(llm):
        from .langchain import LangChainModel  # needs what reads the replies of services

        return (LangChainModel(llm),)  # type: ignore[arg-type]
    return (llm,)  # type: ignore[return-value]
