"""search: ranking, ties, and queries that look like query syntax."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

DOCUMENTS = {
    "corpus/one.md": "# Lions\n\nA lion sleeps all day. The zebra does not.\n",
    "corpus/two.md": "# Plains\n\nThe zebra grazes beside another zebra near the river.\n",
    "corpus/three.md": "# Calibration of scales\n\nA scale is calibrated in spring.\n",
    "corpus/notes.txt": "zebra zebra zebra",
    "secret/zebra.md": "# Zebra\n\nzebra zebra zebra\n",
}


@pytest.fixture(scope="session")
def search(load_tool):
    return load_tool("search").run


@pytest.fixture(scope="session")
def ids(search, fake_io):
    def find(query, files=DOCUMENTS, **options):
        return [hit["id"] for hit in search({"query": query, **options}, fake_io(files))["hits"]]

    return find


def test_hits_carry_rank_id_and_title(search, fake_io):
    assert search({"query": "zebra"}, fake_io(DOCUMENTS)) == {
        "hits": [{"rank": 1, "id": "two", "title": "Plains"}, {"rank": 2, "id": "one", "title": "Lions"}]
    }


def test_only_markdown_of_the_corpus_mount_is_read(search, fake_io):
    io = fake_io(DOCUMENTS)
    search({"query": "zebra"}, io)
    assert io.calls == [
        ("list", "corpus"),
        ("read", "corpus/one.md"),
        ("read", "corpus/three.md"),
        ("read", "corpus/two.md"),
    ]


def test_a_word_in_the_title_weighs_more_than_in_the_body(ids):
    files = {
        "corpus/a.md": "# River bank\n\nThe otter swims home today.\n",
        "corpus/b.md": "# Otter bank\n\nThe river swims home today.\n",
    }
    assert ids("otter", files) == ["b", "a"]
    assert ids("river", files) == ["a", "b"]


def test_other_forms_of_a_word_are_found(ids):
    assert ids("calibrating") == ["three"]


def test_equal_scores_are_ordered_by_id(search, fake_io):
    class Reversed(fake_io):
        def list(self, mount):
            return super().list(mount)[::-1]

    text = "# Same\n\nThe very same words.\n"
    files = {f"corpus/{name}.md": text for name in ("d", "b", "c", "a")} | {
        "corpus/x.md": "# Else\n\nNothing.\n"
    }
    for io in (fake_io(files), Reversed(files)):
        assert [hit["id"] for hit in search({"query": "same"}, io)["hits"]] == ["a", "b", "c", "d"]


def test_scores_are_rounded_before_they_are_compared(load_tool, ids, monkeypatch):
    assert ids("zebra") == ["two", "one"]
    # So coarse that all scores are equal: only the ids are left to order by.
    monkeypatch.setattr(load_tool("search"), "SCORE_DECIMALS", -3)
    assert ids("zebra") == ["one", "two"]


def test_top_k_cuts_and_defaults_to_five(ids):
    files = {f"corpus/n{number}.md": f"# N{number}\n\nword\n" for number in range(9)}
    assert ids("word", files) == ["n0", "n1", "n2", "n3", "n4"]
    assert ids("word", files, top_k=1) == ["n0"]
    assert len(ids("word", files, top_k=20)) == 9


@pytest.mark.parametrize("query", ["", "   ", "!?*", '"', "-- ()", "_", "\x00", "\ud800"])
def test_a_query_without_words_has_no_hits(ids, query):
    assert ids(query) == []


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("zebra NOT lion", "lion not zebra"),
        ("zebra AND sleeps", "and sleeps zebra"),
        ('"zebra', "zebra"),
        ('zebra" OR "lion', "lion or zebra"),
        ("NEAR(zebra river, 1)", "1 near river zebra"),
        ("title:zebra", "title zebra"),
        ("{title body}: zebra", "body title zebra"),
        ("^zebra", "zebra"),
        ("zebra + river", "river zebra"),
        ("- title : zebra)", "title zebra"),
    ],
)
def test_query_syntax_is_inert(ids, query, plain):
    assert ids(query) == ids(plain) != []


def test_only_quoted_lower_case_words_reach_the_database(load_tool):
    # Each of the two keeps operators inert by itself; both must stand.
    expression = load_tool("search")._match_expression
    assert expression('Zebra NOT "lion" title:zebra*') == '"lion" OR "not" OR "title" OR "zebra"'
    assert expression('"*"') == ""


def test_operators_neither_exclude_nor_require(ids):
    assert set(ids("zebra NOT lion")) == {"one", "two"}
    assert set(ids("zebra AND sleeps")) == {"one", "two"}
    assert set(ids("title:zebra")) == {"one", "two"}


def test_a_star_is_no_prefix_search(ids):
    assert ids("zeb*") == []


def test_a_document_without_heading_is_titled_by_its_id(search, fake_io):
    io = fake_io({"corpus/plain.md": "only text\n", "corpus/.md": "only text\n"})
    assert search({"query": "text"}, io)["hits"] == [{"rank": 1, "id": "plain", "title": "plain"}]


def test_an_empty_corpus_has_no_hits(ids):
    assert ids("zebra", {}) == []


def test_arguments_stay_as_they_are(search, fake_io):
    args = {"query": "zebra lion", "top_k": 1}
    search(args, fake_io(DOCUMENTS))
    assert args == {"query": "zebra lion", "top_k": 1}


def test_errors_of_io_pass(search, fake_io):
    error = PermissionError("corpus")
    with pytest.raises(PermissionError) as caught:
        search({"query": "zebra"}, fake_io(DOCUMENTS, error=error))
    assert caught.value is error


@pytest.mark.parametrize("error", [OSError("no text"), OSError("too large"), FileNotFoundError("gone")])
def test_what_is_no_document_hides_none(ids, fake_io, search, error):
    class Odd(fake_io):
        def read(self, path):
            if path == "corpus/odd.md":
                raise error
            return super().read(path)

    io = Odd(DOCUMENTS | {"corpus/odd.md": "# zebra"})
    assert [hit["id"] for hit in search({"query": "zebra"}, io)["hits"]] == ids("zebra") == ["two", "one"]


@pytest.mark.parametrize(
    "error", [ConnectionError, TimeoutError, PermissionError, IsADirectoryError, ValueError]
)
def test_any_other_error_of_a_read_passes(fake_io, search, error):
    class Odd(fake_io):
        def read(self, path):
            raise error("x")

    with pytest.raises(error):
        search({"query": "zebra"}, Odd(DOCUMENTS))


def test_a_word_is_what_the_database_takes_for_one(ids, load_tool):
    """Whatever Python's own tables of letters say."""
    expression = load_tool("search")._match_expression
    assert expression("snow_chains caf\u00e9-Bar \u0416\u0435\u0442\u043e\u043d") == (
        '"bar" OR "cafe" OR "chains" OR "snow" OR "\u0436\u0435\u0442\u043e\u043d"'
    )
    files = {"corpus/a.md": "# Stra\u00dfe\n\ncaf\u00e9\n", "corpus/b.md": "# b\n\nsnow_chains\n"}
    for query, found in (
        ("STRA\u00dfE", ["a"]),
        ("cafe\u0301", ["a"]),
        ("chains", ["b"]),
        ("cafe chains", ["a", "b"]),
    ):
        assert sorted(ids(query, files)) == found


def test_a_query_of_the_largest_number_of_words_is_answered(ids):
    words = [chr(0x4E00 + number) for number in range(198)]
    assert ids(" ".join([*words, "lion"])) == ["one"]


@given(st.text(max_size=400))
def test_no_query_raises(ids, query):
    assert set(ids(query)) <= {"one", "two", "three"}


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from(["zebra", "lion", "river", "the", "scale", "NOT", "near"]), min_size=1),
    st.randoms(),
)
def test_order_and_repetition_of_words_do_not_matter(ids, words, random):
    shuffled = words * 2
    random.shuffle(shuffled)
    assert ids(" ".join(words)) == ids(" ".join(shuffled))
