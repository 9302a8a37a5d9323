"""Full-text search over the Markdown documents of one mount."""

import sqlite3
from contextlib import closing
from typing import Any

DESCRIPTION = (
    "Search the document corpus for free text and return the best matching documents, best first. "
    "Every word of the query counts on its own; there is no query syntax."
)

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["query"],
    "properties": {
        "query": {
            "type": "string",
            "maxLength": 400,
            "description": "Words to look for, in any order.",
        },
        "top_k": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "default": 5,
            "description": "Largest number of hits to return.",
        },
    },
}

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hits"],
    "properties": {
        "hits": {
            "type": "array",
            "maxItems": 20,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["rank", "id", "title"],
                "properties": {
                    "rank": {"type": "integer", "minimum": 1, "maximum": 20},
                    "id": {"type": "string", "minLength": 1, "maxLength": 255},
                    "title": {"type": "string", "minLength": 1, "maxLength": 300},
                },
            },
        }
    },
}

EFFECT = "read"
IDEMPOTENT = True
TRANSIENT: tuple[type[BaseException], ...] = ()
IMPORTS = ("sqlite3",)  # a database in memory
EXAMPLES: dict[str, dict[str, Any]] = {
    "good": {"query": "recorder seals"},
    "bad": {"query": 7},
}

MOUNT = "corpus"
SUFFIX = ".md"
DEFAULT_TOP_K = 5
TITLE_WEIGHT = 3.0
BODY_WEIGHT = 1.0
# Sums of floats may differ in the last bit between builds of SQLite. Nine decimals are far above that
# noise and far below any difference between two documents that matters.
SCORE_DECIMALS = 9
MAX_TITLE = 300


def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return ``{"hits": [{"rank", "id", "title"}, ...]}``, at most ``top_k`` of them, rank 1 first.

    A query without any word gives no hits and reads nothing. Errors of ``io`` pass unchanged.
    """
    match = _match_expression(args["query"])
    if not match:
        return {"hits": []}
    ranked = _rank(_documents(io), match)[: args.get("top_k", DEFAULT_TOP_K)]
    return {
        "hits": [
            {"rank": position, "id": identifier, "title": title}
            for position, (identifier, title) in enumerate(ranked, start=1)
        ]
    }


def _match_expression(query: str) -> str:
    """Turn free text into an FTS5 expression of quoted words joined by OR; empty without words.

    The database itself finds the words, in lower case, as it does in the documents: Python's own idea of a
    letter changes with its version. A word cannot contain a quotation mark, so the quoting needs no escape
    and leaves every operator inert. The words are sorted and kept once, so that neither order nor
    repetition changes a score.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.execute("CREATE VIRTUAL TABLE query USING fts5(text, tokenize = 'unicode61')")
        database.execute("CREATE VIRTUAL TABLE words USING fts5vocab(query, row)")
        # a lone surrogate is no character, and no text of a database holds one
        database.execute("INSERT INTO query VALUES (?)", (query.encode("utf-8", "replace").decode(),))
        words = [word for (word,) in database.execute("SELECT term FROM words ORDER BY term")]
    return " OR ".join(f'"{word}"' for word in words)


def _documents(io: Any) -> list[tuple[str, str, str]]:
    """Return ``(id, title, body)`` of every document of the mount, in the order of the listing.

    What is no text, is too large or has gone meanwhile is no document.
    """
    documents = []
    for path in io.list(MOUNT):
        name = path.rpartition("/")[2]
        if not name.endswith(SUFFIX) or name == SUFFIX:
            continue
        identifier = name.removesuffix(SUFFIX)
        try:
            text = io.read(path)
        except OSError as error:
            if type(error) not in (OSError, FileNotFoundError):
                raise
            continue
        title, body = _split_title(text)
        documents.append((identifier, title or identifier, body))
    return documents


def _split_title(text: str) -> tuple[str, str]:
    """Return the first ``# `` heading, cut to ``MAX_TITLE`` characters, and the text without that line."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.startswith("# "):
            return line[2:].strip(" \t\r")[:MAX_TITLE], "\n".join(lines[:index] + lines[index + 1 :])
    return "", text


def _rank(documents: list[tuple[str, str, str]], match: str) -> list[tuple[str, str]]:
    """Return ``(id, title)`` of the matching documents, best first, equal scores by id."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(
            "CREATE VIRTUAL TABLE docs USING fts5(id UNINDEXED, title, body, tokenize = 'porter unicode61')"
        )
        database.executemany("INSERT INTO docs (id, title, body) VALUES (?, ?, ?)", documents)
        rows = database.execute(
            "SELECT bm25(docs, 0.0, ?, ?), id, title FROM docs WHERE docs MATCH ?",
            (TITLE_WEIGHT, BODY_WEIGHT, match),
        ).fetchall()
    # FTS5 gives the better match the smaller number.
    rows.sort(key=lambda row: (round(row[0], SCORE_DECIMALS), row[1], row[2]))
    return [(identifier, title) for _, identifier, title in rows]
