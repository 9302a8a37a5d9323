"""A live model that is only named so far, as in `Agent("anthropic:MODEL")`: it is opened when a run asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .types import LLMInput, LLMOutput, Model

if TYPE_CHECKING:
    from .providers.common import Adapter


class NamedModel:
    """The model that `spec` (PROVIDER:MODEL) names.

    Its SDK and its key are needed by a run that asks it, not by code that only makes the agent: a module with an agent
    is imported, checked and replayed where there is no key.

    Args:
        spec: `PROVIDER:MODEL`, such as `anthropic:MODEL`.

    Raises:
        InputError: The spec is malformed, or names an unknown provider.
    """

    def __init__(self, spec: str) -> None:
        from .providers import parse_spec  # few runs have a live model

        self._spec = spec
        self._adapter: Adapter | None = None
        provider, name = parse_spec(spec)
        self.identity: dict[str, Any] = {
            "execution_path": "live",
            "provider": provider,
            "name": name,
            "script_digest": None,
        }

    def __repr__(self) -> str:
        return f"<model {self._spec!r}>"

    def open(self) -> Adapter:
        """Return the model ready to be asked. Raises InputError where its SDK or its key is missing."""
        if self._adapter is None:
            from .providers import open_model

            self._adapter = open_model(self._spec)
        return self._adapter

    @property
    def is_open(self) -> bool:
        """Whether the model is ready to be asked."""
        return self._adapter is not None

    @property
    def secrets(self) -> tuple[tuple[str, str], ...]:
        """The secrets that the model is asked with; none before it is opened."""
        return () if self._adapter is None else self._adapter.secrets

    def __call__(self, model_input: LLMInput) -> LLMOutput:
        """Ask the model once."""
        return self.open()(model_input)

    async def ask_async(self, model_input: LLMInput) -> LLMOutput:
        """Ask the model once in an event loop."""
        return await self.open().ask_async(model_input)


def needs_opening(model: Model) -> bool:
    """Return whether a model is only named so far."""
    return isinstance(model, NamedModel) and not model.is_open


def open_named(model: Model) -> None:
    """Open a model that is only named so far, so that a missing key ends a run before anything of it is written."""
    if isinstance(model, NamedModel):
        model.open()
