"""A lazy pattern does what the compiled one does, and compiles once."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from tachograph.runtime.formats.lazy_pattern import lazy_pattern


def test_it_has_the_methods_of_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda *given: compiled.append(given[0]) or real(*given))
    lazy, pattern = lazy_pattern("(?P<word>[a-z]+)", re.IGNORECASE), real("(?P<word>[a-z]+)", re.IGNORECASE)
    assert compiled == []
    assert lazy.sub("x", "A1b") == pattern.sub("x", "A1b")
    assert [match["word"] for match in lazy.finditer("A1b")] == ["A", "b"]
    assert lazy.fullmatch("abc") is not None and lazy.match("1") is None and lazy.search("1a") is not None
    assert (lazy.pattern, lazy.flags, lazy.groups) == (pattern.pattern, pattern.flags, pattern.groups)
    assert compiled == ["(?P<word>[a-z]+)"] * len(compiled) and len(compiled) <= 3


def test_it_can_be_copied() -> None:
    lazy = lazy_pattern("a+")
    assert copy.deepcopy(lazy).fullmatch("aa") is not None
    assert pickle.loads(pickle.dumps(lazy)).fullmatch("aa") is not None
