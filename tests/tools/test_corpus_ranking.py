"""The real corpus under the real search: every fact finds its document, and some rankings are pinned."""

import json
import re
from pathlib import Path

import pytest

MANIFEST = json.loads((Path(__file__).resolve().parents[2] / "data/corpus/v1/manifest.json").read_bytes())
DOCUMENTS = MANIFEST["documents"]


@pytest.fixture(scope="session")
def ids(load_tool, corpus_io):
    def find(query, **options):
        return [hit["id"] for hit in load_tool("search").run({"query": query, **options}, corpus_io)["hits"]]

    return find


def test_the_corpus_has_25_documents():
    assert [item["id"] for item in DOCUMENTS] == [
        f"op-{group}{number}" for group in "abcde" for number in range(1, 6)
    ]


@pytest.mark.parametrize("item", DOCUMENTS, ids=lambda item: item["id"])
def test_the_content_words_of_a_fact_find_its_document_first(ids, load_tool, item):
    stop_words = load_tool("summarize").STOP_WORDS
    query = " ".join(word for word in re.findall(r"\w+", item["fact"].casefold()) if word not in stop_words)
    assert ids(query)[0] == item["id"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("driver recorder failure on the road", ["op-a4", "op-e2", "op-a2", "op-a1", "op-a3"]),
        ("winter tyres and snow chains", ["op-d4", "op-d3", "op-a2", "op-d2", "op-a3"]),
        ("how long is a break", ["op-b2", "op-e4", "op-e2", "op-c1", "op-a4"]),
    ],
)
def test_pinned_rankings(ids, query, expected):
    assert ids(query) == expected


def test_the_titles_of_the_hits_are_those_of_the_manifest(load_tool, corpus_io):
    titles = {item["id"]: item["title"] for item in DOCUMENTS}
    hits = load_tool("search").run({"query": "kestrel pass the lorry", "top_k": 20}, corpus_io)["hits"]
    assert len(hits) == 20
    assert all(hit["title"] == titles[hit["id"]] for hit in hits)


def test_search_fetch_read_and_summarize_answer_a_question(load_tool, corpus_io):
    hits = load_tool("search").run({"query": "driver recorder failure on the road"}, corpus_io)["hits"]
    url = f"https://corpus.test/{hits[0]['id']}.md"
    fetched = load_tool("fetch").run({"url": url}, corpus_io)["text"]
    read = load_tool("read").run({"path": f"corpus/{hits[1]['id']}.md"}, corpus_io)["text"]
    result = load_tool("summarize").run({"text": fetched + "\n" + read, "max_sentences": 3}, corpus_io)
    sentences = [
        (
            "When the recorder fails on the road, the driver stops at the next safe place and calls the "
            "dispatch room at Ollerbeck within 20 minutes."
        ),
        (
            "While the recorder is out of use, the driver writes driving, breaks and other work by hand on "
            "the grey sheet."
        ),
        (
            "After a failure on the road, the driver may finish the trip, but the recorder must be repaired "
            "before the lorry leaves a depot again."
        ),
    ]
    assert result == {"summary": " ".join(sentences), "sentences": 3, "of": 25}
    assert all(sentence in fetched and sentence not in read for sentence in sentences)
