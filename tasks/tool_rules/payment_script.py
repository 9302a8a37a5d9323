"""Turns of a scripted model that pays bills, for agents of this folder."""

from __future__ import annotations

from typing import Any


def pays(say: str, *amounts: int) -> dict[str, Any]:
    """Return a turn that asks for payments to one recipient."""
    return {
        "say": say,
        "calls": [
            {"tool": "send_money", "arguments": {"amount": amount, "recipient": "Ollerbeck depot"}}
            for amount in amounts
        ],
        "usage": {"input_tokens": 200, "output_tokens": 20},
    }


def answers(text: str) -> dict[str, Any]:
    """Return the turn with the final answer."""
    return {"answer": text, "usage": {"input_tokens": 260, "output_tokens": 15}}
