"""Build or check the manifest of the document corpus.

    python data/corpus/fixture.py build [FOLDER]   write manifest.json from the documents
    python data/corpus/fixture.py check [FOLDER]   verify documents and manifest, write nothing

FOLDER holds the documents and defaults to ``v1`` beside this script. Every problem is one line
``path:line: what is wrong; what to do`` on standard output. Exit status: 0 fine, 1 problems found,
2 wrong usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "corpus/v1"
LICENCE = "CC0-1.0"
MANIFEST = "manifest.json"
DOCUMENT_NAME = re.compile(r"op-[a-z][1-9]\.md")
TOP_KEYS = ("schema", "licence", "documents")
ENTRY_KEYS = ("id", "title", "file", "bytes", "sha256", "fact")
BUILD = "python data/corpus/fixture.py build"

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@dataclass(order=True, frozen=True)
class Problem:
    """One finding; ``line`` counts from 1."""

    file: str
    line: int
    wrong: str
    todo: str


@dataclass
class Document:
    """One document: its name, its bytes, and what was read out of them."""

    name: str
    raw: bytes
    title: str = ""
    # (line number, sentence) in the order of the text, the heading excluded
    sentences: list[tuple[int, str]] = field(default_factory=list)

    @property
    def identifier(self) -> str:
        return self.name.removesuffix(".md")


def parse(name: str, raw: bytes) -> tuple[Document, list[Problem]]:
    """Read one document and report what breaks its form."""
    document = Document(name, raw)
    problems: list[Problem] = []

    def report(line: int, wrong: str, todo: str) -> None:
        problems.append(Problem(name, line, wrong, todo))

    if b"\r" in raw:
        report(raw[: raw.index(b"\r")].count(b"\n") + 1, "carriage return", "end lines with LF only")
        raw = raw.replace(b"\r\n", b"\n")
    for number, row in enumerate(raw.split(b"\n"), start=1):
        if any(byte > 126 or (byte < 32 and byte != 13) for byte in row):
            report(number, "character outside printable ASCII", "write it in plain ASCII")
    if not raw.endswith(b"\n") or raw.endswith(b"\n\n"):
        report(
            max(1, len(raw.splitlines())), "the file does not end in one newline", "end it with exactly one"
        )

    lines = raw.decode("ascii", errors="replace").rstrip("\n").split("\n")
    if lines[0].startswith("# ") and lines[0][2:].strip():
        document.title = lines[0][2:].strip()
    else:
        report(1, "no title", "start the first line with '# ' and a title")
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        if line.startswith("#"):
            report(number, "second heading", "keep one heading, on the first line")
            continue
        if not line.endswith("."):
            report(
                number,
                "the paragraph does not end in a full stop",
                "end it with '.', and keep it on one line",
            )
        document.sentences += [(number, part) for part in re.split(r"(?<=\.) ", line) if part]
    if not document.sentences:
        report(1, "no text below the title", "write the paragraphs or delete the file")
    return document, problems


def check_together(documents: list[Document]) -> list[Problem]:
    """Report titles and sentences that stand in more than one place of the corpus."""
    problems: list[Problem] = []
    titles: dict[str, str] = {}
    places: dict[str, str] = {}
    for document in documents:
        if document.title:
            first = titles.setdefault(document.title, document.name)
            if first != document.name:
                problems.append(
                    Problem(document.name, 1, f"same title as {first}", "give it a title of its own")
                )
        for line, sentence in document.sentences:
            place = f"{document.name}:{line}"
            if sentence in places:
                wrong = f"same sentence as {places[sentence]}"
                problems.append(Problem(document.name, line, wrong, "reword one of the two"))
            else:
                places[sentence] = place
    return problems


def is_fact(candidate: str, document: Document, documents: list[Document]) -> bool:
    """Tell whether ``candidate`` is a sentence of ``document`` and stands in no other document."""
    if candidate not in [sentence for _, sentence in document.sentences]:
        return False
    quoted = candidate.encode("utf-8")
    return not any(quoted in other.raw for other in documents if other is not document)


def choose_fact(recorded: str | None, document: Document, documents: list[Document]) -> str | None:
    """Return the recorded fact if it still stands, else the first sentence with a digit that may serve."""
    if recorded is not None and is_fact(recorded, document, documents):
        return recorded
    for _, sentence in document.sentences:
        if re.search(r"[0-9]", sentence) and is_fact(sentence, document, documents):
            return sentence
    return None


def render(manifest: dict[str, Any]) -> bytes:
    """Return the one written form of a manifest."""
    return (json.dumps(manifest, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def entry(document: Document, fact: str) -> dict[str, Any]:
    """Return the manifest entry of one document, keys in their written order."""
    return {
        "id": document.identifier,
        "title": document.title,
        "file": document.name,
        "bytes": len(document.raw),
        "sha256": hashlib.sha256(document.raw).hexdigest(),
        "fact": fact,
    }


def load_documents(folder: Path) -> tuple[list[Document], list[Problem]]:
    """Read every document of the folder, sorted by name, and report what does not belong there."""
    documents: list[Document] = []
    problems: list[Problem] = []
    for path in sorted(folder.iterdir(), key=lambda item: item.name):
        if path.name == MANIFEST:
            continue
        if path.is_symlink() or not path.is_file() or not DOCUMENT_NAME.fullmatch(path.name):
            wrong = "not a document (documents are files named like op-a1.md)"
            problems.append(Problem(path.name, 1, wrong, "rename or remove it"))
            continue
        document, found = parse(path.name, path.read_bytes())
        documents.append(document)
        problems += found
    if not documents:
        problems.append(Problem("", 1, "the folder holds no document", "name the folder of the corpus"))
    return documents, problems + check_together(documents)


def recorded_facts(folder: Path) -> dict[str, str]:
    """Return the facts of the present manifest by id; a missing or unreadable manifest has none."""
    try:
        entries = json.loads((folder / MANIFEST).read_bytes())["documents"]
        return {item["id"]: item["fact"] for item in entries if isinstance(item["fact"], str)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes the file private; a corpus file is readable by all.
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def build(folder: Path) -> tuple[int, list[Problem]]:
    """Write the manifest unless the documents have problems; return their number and the problems."""
    documents, problems = load_documents(folder)
    recorded = recorded_facts(folder)
    entries = []
    for document in documents:
        fact = choose_fact(recorded.get(document.identifier), document, documents)
        if fact is None:
            wrong = "no sentence with a number that stands in this document only"
            problems.append(Problem(document.name, 1, wrong, "add one"))
        else:
            entries.append(entry(document, fact))
    if not problems:
        write_whole(folder / MANIFEST, render({"schema": SCHEMA, "licence": LICENCE, "documents": entries}))
    return len(documents), problems


def check(folder: Path) -> tuple[int, list[Problem]]:
    """Verify folder and manifest without writing; return the number of documents and the problems."""
    documents, problems = load_documents(folder)
    path = folder / MANIFEST
    if not path.is_file():
        return len(documents), [*problems, Problem(MANIFEST, 1, "the file is missing", f"run {BUILD}")]
    return len(documents), problems + check_manifest(path.read_bytes(), documents)


def check_manifest(raw: bytes, documents: list[Document]) -> list[Problem]:
    """Compare the manifest with the documents."""
    problems: list[Problem] = []

    def report(line: int, wrong: str, todo: str, file: str = MANIFEST) -> None:
        problems.append(Problem(file, line, wrong, todo))

    try:
        manifest = json.loads(raw)
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        return [Problem(MANIFEST, line, "not valid JSON", f"run {BUILD}")]
    if (
        not isinstance(manifest, dict)
        or tuple(manifest) != TOP_KEYS
        or not isinstance(manifest["documents"], list)
    ):
        return [Problem(MANIFEST, 1, f"not an object of {', '.join(TOP_KEYS)}", f"run {BUILD}")]
    for key, wanted in (("schema", SCHEMA), ("licence", LICENCE)):
        if manifest[key] != wanted:
            report(line_of(raw, f'"{key}":'), f"{key} is not {wanted}", f"run {BUILD}")

    by_name = {document.name: document for document in documents}
    listed: list[str] = []
    for item in manifest["documents"]:
        if not isinstance(item, dict) or tuple(item) != ENTRY_KEYS:
            report(1, f"an entry is not an object of {', '.join(ENTRY_KEYS)}", f"run {BUILD}")
            continue
        line = line_of(raw, f'"id": {json.dumps(item["id"])}')
        name = item["file"]
        if not isinstance(name, str) or name != f"{item['id']}.md":
            report(line, f"file of {item['id']} is not {item['id']}.md", f"run {BUILD}")
            continue
        if name in listed:
            report(line, f"{name} is listed twice", f"run {BUILD}")
        listed.append(name)
        document = by_name.get(name)
        if document is None:
            report(line, f"{name} is listed but missing", f"restore the file or run {BUILD}")
            continue
        for key, value in entry(document, "").items():
            if key != "fact" and item[key] != value:
                wrong = f"{key} is {value}, the manifest says {item[key]}"
                report(1, wrong, f"undo the change or run {BUILD}", name)
        if not isinstance(item["fact"], str) or not is_fact(item["fact"], document, documents):
            report(line, f"fact of {item['id']} is not a sentence of {name} alone", f"run {BUILD}")
    if listed != sorted(listed):
        report(1, "the documents are not sorted by id", f"run {BUILD}")
    for name in by_name:
        if name not in listed:
            report(1, "the manifest does not list this document", f"remove it or run {BUILD}", name)
    # Only when all values are right can the bytes be wrong by themselves: spacing, order or escapes.
    if not problems and raw != render(manifest):
        report(1, "not in the written form (indent 2, one final newline)", f"run {BUILD}")
    return problems


def line_of(raw: bytes, text: str) -> int:
    """Return the number of the first line that contains ``text``, or 1."""
    position = raw.find(text.encode("utf-8"))
    return raw[:position].count(b"\n") + 1 if position >= 0 else 1


def display(folder: Path, file: str) -> str:
    """Return the path of a file relative to the repository root, or as given if it lies outside."""
    path = folder / file
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return path.as_posix()


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit status."""
    parser = argparse.ArgumentParser(description="Build or check the manifest of the document corpus.")
    parser.add_argument("command", choices=("build", "check"))
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "v1", help="folder of the documents")
    arguments = parser.parse_args(argv)
    folder: Path = arguments.folder
    if not folder.is_dir():
        print(f"{display(folder, '')}:1: no such folder; name the folder of the corpus")
        return 1
    count, problems = (build if arguments.command == "build" else check)(folder)
    for problem in sorted(problems):
        print(f"{display(folder, problem.file)}:{problem.line}: {problem.wrong}; {problem.todo}")
    if problems:
        return 1
    outcome = "manifest written" if arguments.command == "build" else "all digests match"
    print(f"fixture-{arguments.command}: {count} documents, {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
