"""fetch: what it returns, and errors that pass."""

import pytest
from jsonschema import Draft202012Validator

URL = "https://corpus.test/a.md"


@pytest.fixture(scope="session")
def fetch(load_tool):
    return load_tool("fetch").run


def test_the_response_is_returned(fetch, fake_io):
    io = fake_io(pages={URL: "# A\n"})
    assert fetch({"url": URL}, io) == {
        "url": URL,
        "status": 200,
        "content_type": "text/markdown",
        "text": "# A\n",
    }
    assert io.calls == [("get", URL)]


def test_the_final_url_is_returned_after_a_redirect(fetch, fake_io, page):
    final = "https://corpus.test/b.md"
    assert fetch({"url": URL}, fake_io(pages={URL: page(final, "b")}))["url"] == final


def test_a_missing_page_is_a_result(fetch, fake_io):
    assert fetch({"url": URL}, fake_io())["status"] == 404


def test_a_missing_content_type_is_empty(fetch, fake_io, page):
    assert fetch({"url": URL}, fake_io(pages={URL: page(URL, "a", headers={})}))["content_type"] == ""


def test_a_long_content_type_is_cut(fetch, fake_io, page):
    said = "text/html; x=" + "a" * 300
    result = fetch({"url": URL}, fake_io(pages={URL: page(URL, "a", headers={"content-type": said})}))
    assert result["content_type"] == said[:255]


def test_a_long_text_is_cut_and_said_to_be(fetch, fake_io, load_tool):
    limit = load_tool("fetch").OUTPUT_SCHEMA["properties"]["text"]["maxLength"]
    assert "truncated" not in fetch({"url": URL}, fake_io(pages={URL: "é" * limit}))
    result = fetch({"url": URL}, fake_io(pages={URL: "é" * limit + "b"}))
    assert result["text"] == "é" * limit and result["truncated"] is True
    description = load_tool("fetch").DESCRIPTION
    assert "truncated" in description and str(limit) in description


def test_what_the_way_out_gives_keeps_to_the_output_schema(fetch, fake_io, load_tool, page):
    """The longest URL that a policy can allow, the longest text that is read, any header."""
    long = "https://corpus.test/" + "a" * (8192 - 20)
    validator = Draft202012Validator(load_tool("fetch").OUTPUT_SCHEMA)
    found = page(long, "a" * 8_000_000, headers={"content-type": "b" * 65_000})
    validator.validate(fetch({"url": URL}, fake_io(pages={URL: found})))
    Draft202012Validator(load_tool("fetch").INPUT_SCHEMA).validate({"url": long})
    assert not Draft202012Validator(load_tool("fetch").INPUT_SCHEMA).is_valid({"url": long + "a"})


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError("refused"), ConnectionError("503"), TimeoutError("late"), PermissionError("no")],
)
def test_errors_of_io_pass(fetch, fake_io, error):
    with pytest.raises(type(error)) as caught:
        fetch({"url": URL}, fake_io(pages={URL: error}))
    assert caught.value is error


def test_which_errors_are_worth_a_retry(load_tool):
    transient = load_tool("fetch").TRANSIENT
    assert issubclass(ConnectionRefusedError, transient)
    assert issubclass(TimeoutError, transient)
    assert not issubclass(PermissionError, transient)


def test_arguments_stay_as_they_are(fetch, fake_io):
    args = {"url": URL}
    fetch(args, fake_io())
    assert args == {"url": URL}
