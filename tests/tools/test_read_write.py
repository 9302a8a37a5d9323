"""read and write: the text comes back unchanged, and errors pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="session")
def read(load_tool):
    return load_tool("read").run


@pytest.fixture(scope="session")
def write(load_tool):
    return load_tool("write").run


def test_read_returns_path_and_text(read, fake_io):
    io = fake_io({"corpus/a.md": "# A\r\n"})
    assert read({"path": "corpus/a.md"}, io) == {"path": "corpus/a.md", "text": "# A\r\n"}
    assert io.calls == [("read", "corpus/a.md")]


def test_write_counts_bytes_not_characters(write, fake_io):
    io = fake_io()
    assert write({"path": "out/a.txt", "content": "a\u00e4\u20ac\U0001f600"}, io) == {
        "path": "out/a.txt",
        "bytes": 10,
    }
    assert io.files == {"out/a.txt": "a\u00e4\u20ac\U0001f600"}


def test_write_replaces(write, fake_io):
    io = fake_io({"out/a.txt": "a long old text"})
    write({"path": "out/a.txt", "content": ""}, io)
    assert io.files == {"out/a.txt": ""}


def test_text_that_utf8_cannot_hold_is_never_written(write, fake_io):
    io = fake_io({"out/a.txt": "old"})
    with pytest.raises(UnicodeEncodeError):
        write({"path": "out/a.txt", "content": "\ud800"}, io)
    assert io.calls == []


def test_errors_of_io_pass(read, write, fake_io):
    with pytest.raises(FileNotFoundError):
        read({"path": "corpus/none.md"}, fake_io())
    error = OSError("no space left")
    with pytest.raises(OSError, match="no space left") as caught:
        write({"path": "out/a.txt", "content": "a"}, fake_io(error=error))
    assert caught.value is error


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_read_back_and_a_second_write_changes_nothing(read, write, fake_io, content):
    io = fake_io()
    args = {"path": "out/a.txt", "content": content}
    first = write(args, io)
    after = dict(io.files)
    assert write(args, io) == first
    assert io.files == after
    assert read({"path": "out/a.txt"}, io)["text"] == content
    assert args == {"path": "out/a.txt", "content": content}
