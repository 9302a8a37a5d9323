"""Fixtures for the tool tests. Tools are loaded by file path: there is no package named tools."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@cache
def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_by_path_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Session scope throughout: hypothesis refuses fixtures that would have to be renewed for every example.
@pytest.fixture(scope="session")
def root():
    """The repository root."""
    return ROOT


@pytest.fixture(scope="session")
def load_tool():
    """A function from the name of a tool to its module."""
    return lambda name: _load(ROOT / "tools" / f"{name}.py")


@pytest.fixture(scope="session")
def fake_io():
    """The class ``FakeIo``; call it with the files and pages that a test needs."""
    return _load(Path(__file__).with_name("fake_io.py")).FakeIo


@pytest.fixture(scope="session")
def page():
    """The class ``Page``, a response as ``io.get`` gives it."""
    return _load(Path(__file__).with_name("fake_io.py")).Page


@pytest.fixture(scope="session")
def corpus_io(fake_io):
    """An ``io`` over the real documents, by mount path and by URL."""
    texts = {
        path.name: path.read_bytes().decode("ascii")
        for path in (ROOT / "data" / "corpus" / "v1").glob("*.md")
    }
    return fake_io(
        files={f"corpus/{name}": text for name, text in texts.items()},
        pages={f"https://corpus.test/{name}": text for name, text in texts.items()},
    )
