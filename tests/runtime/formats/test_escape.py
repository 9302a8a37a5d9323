"""Untrusted text made safe to show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.runtime.formats.escape import (
    code_span,
    escape_ascii,
    escape_build_log,
    escape_markdown,
    escape_terminal,
    quote_literal,
    quote_untrusted,
    truncate,
)
from tachograph.runtime.formats.invisible_chars import HIDDEN

TEXT = st.text(st.characters() | st.sampled_from("\x1b\n\r\t`|#@<[:'\"\\\u202e\u200b\ud800"), max_size=200)


@pytest.mark.parametrize(("text", "cut"), [("", ""), ("abc", "abc"), ("abcd", "ab…")])
def test_truncate(text: str, cut: str) -> None:
    assert truncate(text, 3) == cut


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", '"plain"'),
        ('say "yes"\n', "\"say 'yes'\\x0a\""),
        ("漢\u202e", '"\\u6f22\\u202e"'),
        ("x" * 121, '"' + "x" * 117 + '..."'),
    ],
)
def test_a_quote_for_a_reason(text: str, quoted: str) -> None:
    assert quote_untrusted(text) == quoted


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("@team", "\\u{40}team"),
        ("[a](b)", "&#91;a&#93;(b)"),
        ("# title", "&#35; title"),
        ("https://x", "https&#58;//x"),
        ("1. item", "&#49;. item"),
        ("loop_budget/max_tokens_2", "loop_budget/max_tokens_2"),
        ("_a_ b_ a__b é_é _", "&#95;a&#95; b&#95; a&#95;&#95;b é&#95;é &#95;"),
        ("a_*b*_c", "a&#95;&#42;b&#42;&#95;c"),
        ("a\nb\u202e", "a&#92;u{a}b&#92;u{202e}"),
    ],
)
def test_markdown(text: str, written: str) -> None:
    assert escape_markdown(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("", "` `"), ("a|b", "`a\\u{7c}b`"), ("``", "``` `` ```"), ("`" * 80, "`" + "\\u{60}" * 80 + "`")],
)
def test_a_code_span(text: str, written: str) -> None:
    assert code_span(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("##vso[task]", "##vso\\u{5b}task]"), ("::error::x", "\\u{3a}:error::x"), ("a::b", "a::b")],
)
def test_a_line_of_a_build_log(text: str, written: str) -> None:
    assert escape_build_log(text) == written


@given(st.text(st.sampled_from("a1_*é .-(\u00a0"), max_size=12))
def test_an_underscore_never_begins_emphasis(text: str) -> None:
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark")
    (inline,) = (
        token for token in parser.parse("x " + escape_markdown(text) + " x") if token.type == "inline"
    )
    assert all(token.type in ("text", "text_special") for token in inline.children)


@given(TEXT, st.integers(5, 200))
def test_no_text_leaves_its_line_or_its_length(text: str, limit: int) -> None:
    for line in (escape_terminal(text, limit), escape_build_log(text, limit)):
        assert not HIDDEN.search(line) and len(line) <= limit
    for line in (escape_terminal(text), escape_markdown(text), code_span(text)):
        assert not HIDDEN.search(line)
    for line in (escape_ascii(text), quote_untrusted(text), quote_literal(text)):
        assert line.isascii() and line.isprintable()
    assert len(quote_literal(text)) <= 80
    assert quote_untrusted(text).count('"') == 2
