"""data/corpus/fixture.py, run as a command on copies of the corpus."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parents[2] / "data" / "corpus"


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def copy(tmp_path):
    """A whole copy, so that its script sees the copy as its repository; returns (script, documents)."""
    target = tmp_path / "data" / "corpus"
    shutil.copytree(CORPUS, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target / "fixture.py", target / "v1"


def edit(path, old, new):
    raw = path.read_bytes()
    assert raw.count(old) == 1, old
    path.write_bytes(raw.replace(old, new))


def edit_entry(folder, identifier, **values):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    next(item for item in manifest["documents"] if item["id"] == identifier).update(values)
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="ascii", newline="\n")


def fact_of(folder, identifier):
    manifest = json.loads((folder / "manifest.json").read_bytes())
    return next(item["fact"] for item in manifest["documents"] if item["id"] == identifier)


def test_the_corpus_itself_is_sound():
    assert run(CORPUS / "fixture.py", "check") == (0, ["fixture-check: 25 documents, all digests match"])


def test_the_documents_keep_to_their_size():
    for path in sorted((CORPUS / "v1").glob("*.md")):
        paragraphs = path.read_text(encoding="ascii").strip().split("\n\n")[1:]
        words = sum(len(paragraph.split()) for paragraph in paragraphs)
        assert 5 <= len(paragraphs) <= 9, path.name
        assert 180 <= words <= 300, path.name
        assert not any(re.match(r"([-*+|>]|\d+[.)]) ", paragraph) for paragraph in paragraphs), path.name


def test_check_writes_nothing(copy):
    script, folder = copy
    (folder / "op-a1.md").unlink()
    before = snapshot(folder)
    assert run(script, "check")[0] == 1
    assert snapshot(folder) == before


def test_build_of_an_unchanged_corpus_changes_nothing(copy):
    script, folder = copy
    before = snapshot(folder)
    assert run(script, "build") == (0, ["fixture-build: 25 documents, manifest written"])
    assert snapshot(folder) == before


DAMAGES = {
    "missing document": (
        lambda folder: (folder / "op-b2.md").unlink(),
        r"data/corpus/v1/manifest\.json:\d+: op-b2\.md is listed but missing; restore the file or run .+",
    ),
    "stray file": (
        lambda folder: (folder / "notes.txt").write_text("x\n"),
        r"data/corpus/v1/notes\.txt:1: not a document .+; rename or remove it",
    ),
    "stray folder": (
        lambda folder: (folder / "op-f1.md").mkdir(),
        r"data/corpus/v1/op-f1\.md:1: not a document .+; rename or remove it",
    ),
    "unlisted document": (
        lambda folder: (folder / "op-f1.md").write_text("# New\n\nThe new depot has 77 lamps.\n"),
        r"data/corpus/v1/op-f1\.md:1: the manifest does not list this document; remove it or run .+ build",
    ),
    "changed digest": (
        lambda folder: edit_entry(folder, "op-a1", sha256="0" * 64),
        r"data/corpus/v1/op-a1\.md:1: sha256 is [0-9a-f]{64}, the manifest says 0{64}; undo the change or .+",
    ),
    "changed size": (
        lambda folder: edit_entry(folder, "op-a1", bytes=1),
        r"data/corpus/v1/op-a1\.md:1: bytes is \d+, the manifest says 1; undo the change or run .+ build",
    ),
    "changed title": (
        lambda folder: edit_entry(folder, "op-a1", title="Other"),
        r"data/corpus/v1/op-a1\.md:1: title is Daily care .+, the manifest says Other; undo .+",
    ),
    "title not unique": (
        lambda folder: edit(folder / "op-c4.md", b"# Dangerous goods", b"# Chilled goods"),
        r"data/corpus/v1/op-c4\.md:1: same title as op-c3\.md; give it a title of its own",
    ),
    "no title": (
        lambda folder: edit(folder / "op-c4.md", b"# Dangerous goods", b"Dangerous goods."),
        r"data/corpus/v1/op-c4\.md:1: no title; start the first line with '# ' and a title",
    ),
    "second heading": (
        lambda folder: edit(folder / "op-c4.md", b"\n\nTwo orange", b"\n\n## Plates\n\nTwo orange"),
        r"data/corpus/v1/op-c4\.md:7: second heading; keep one heading, on the first line",
    ),
    "not ASCII": (
        lambda folder: edit(folder / "op-c4.md", b"orange plates", "\u00f6range plates".encode()),
        r"data/corpus/v1/op-c4\.md:7: character outside printable ASCII; write it in plain ASCII",
    ),
    "tab": (
        lambda folder: edit(folder / "op-c4.md", b"orange plates", b"orange\tplates"),
        r"data/corpus/v1/op-c4\.md:7: character outside printable ASCII; write it in plain ASCII",
    ),
    "carriage return": (
        lambda folder: edit(folder / "op-c4.md", b"\n\nTwo orange", b"\r\n\nTwo orange"),
        r"data/corpus/v1/op-c4\.md:5: carriage return; end lines with LF only",
    ),
    "no newline at the end": (
        lambda folder: (folder / "op-c4.md").write_bytes((folder / "op-c4.md").read_bytes()[:-1]),
        r"data/corpus/v1/op-c4\.md:13: the file does not end in one newline; end it with exactly one",
    ),
    "two newlines at the end": (
        lambda folder: (folder / "op-c4.md").write_bytes((folder / "op-c4.md").read_bytes() + b"\n"),
        r"data/corpus/v1/op-c4\.md:14: the file does not end in one newline; end it with exactly one",
    ),
    "no full stop": (
        lambda folder: edit(folder / "op-c4.md", b"remains closed.\n", b"remains closed\n"),
        r"data/corpus/v1/op-c4\.md:5: the paragraph does not end in a full stop; .+",
    ),
    "no text": (
        lambda folder: (folder / "op-c4.md").write_bytes(b"# Dangerous goods\n"),
        r"data/corpus/v1/op-c4\.md:1: no text below the title; write the paragraphs or delete the file",
    ),
    "sentence not unique": (
        lambda folder: edit(
            folder / "op-c4.md", b"remains closed.\n", b"remains closed. Never confront a thief.\n"
        ),
        r"data/corpus/v1/op-e4\.md:7: same sentence as op-c4\.md:5; reword one of the two",
    ),
    "fact not a sentence": (
        lambda folder: edit_entry(folder, "op-d2", fact="The pumps at Harrow Mere give diesel."),
        r"data/corpus/v1/manifest\.json:\d+: fact of op-d2 is not a sentence of op-d2\.md alone; run .+",
    ),
    "fact of another document": (
        lambda folder: edit_entry(folder, "op-d2", fact=fact_of(folder, "op-d3")),
        r"data/corpus/v1/manifest\.json:\d+: fact of op-d2 is not a sentence of op-d2\.md alone; run .+",
    ),
    "listed twice": (
        lambda folder: edit_entry(folder, "op-d2", id="op-d1", file="op-d1.md"),
        r"data/corpus/v1/manifest\.json:\d+: op-d1\.md is listed twice; run .+ build",
    ),
    "foreign file name": (
        lambda folder: edit_entry(folder, "op-d2", file="../op-d2.md"),
        r"data/corpus/v1/manifest\.json:\d+: file of op-d2 is not op-d2\.md; run .+ build",
    ),
    "not sorted": (
        lambda folder: edit_entry(folder, "op-d2", id="op-z9", file="op-z9.md"),
        r"data/corpus/v1/manifest\.json:1: the documents are not sorted by id; run .+ build",
    ),
    "entry with another key": (
        lambda folder: edit_entry(folder, "op-d2", colour="red"),
        r"data/corpus/v1/manifest\.json:1: an entry is not an object of id, title, .+; run .+ build",
    ),
    "other licence": (
        lambda folder: edit(folder / "manifest.json", b'"CC0-1.0"', b'"none"'),
        r"data/corpus/v1/manifest\.json:3: licence is not CC0-1\.0; run .+ build",
    ),
    "other form": (
        lambda folder: edit(folder / "manifest.json", b'"licence": ', b'"licence":  '),
        r"data/corpus/v1/manifest\.json:1: not in the written form .+; run .+ build",
    ),
    "broken JSON": (
        lambda folder: edit(folder / "manifest.json", b'"licence": ', b'"licence" '),
        r"data/corpus/v1/manifest\.json:3: not valid JSON; run .+ build",
    ),
    "another JSON value": (
        lambda folder: (folder / "manifest.json").write_text("[]\n"),
        r"data/corpus/v1/manifest\.json:1: not an object of schema, licence, documents; run .+ build",
    ),
    "no manifest": (
        lambda folder: (folder / "manifest.json").unlink(),
        r"data/corpus/v1/manifest\.json:1: the file is missing; run .+ build",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_check_names_each_kind_of_damage(copy, damage):
    script, folder = copy
    change, message = DAMAGES[damage]
    change(folder)
    status, lines = run(script, "check")
    assert status == 1
    assert any(re.fullmatch(message, line) for line in lines), lines
    assert all(re.fullmatch(r"data/corpus/v1/[\w.-]+:\d+: [^;]+; .+", line) for line in lines), lines


def test_a_changed_word_shows_as_another_digest(copy):
    script, folder = copy
    edit(folder / "op-c4.md", b"orange plates", b"yellow plates")
    status, lines = run(script, "check")
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith("data/corpus/v1/op-c4.md:1: sha256 is ")


@pytest.mark.parametrize(
    "damage", ["no manifest", "broken JSON", "changed size", "missing document", "other form"]
)
def test_build_repairs_the_manifest(copy, damage):
    script, folder = copy
    DAMAGES[damage][0](folder)
    assert run(script, "build")[0] == 0
    assert run(script, "check")[0] == 0


def test_build_refuses_damaged_documents_and_leaves_the_manifest(copy):
    script, folder = copy
    DAMAGES["title not unique"][0](folder)
    before = snapshot(folder)
    status, lines = run(script, "build")
    assert (status, lines) == (
        1,
        ["data/corpus/v1/op-c4.md:1: same title as op-c3.md; give it a title of its own"],
    )
    assert snapshot(folder) == before


def test_build_refuses_a_document_without_a_fact(copy):
    script, folder = copy
    (folder / "op-f1.md").write_text("# New\n\nNo number stands here.\n")
    status, lines = run(script, "build")
    assert status == 1
    assert lines == [
        "data/corpus/v1/op-f1.md:1: no sentence with a number that stands in this document only; add one"
    ]


def test_a_recorded_fact_is_kept_while_it_stands(copy):
    script, folder = copy
    other = "Never confront a thief."
    edit_entry(folder, "op-e4", fact=other)
    run(script, "build")
    assert fact_of(folder, "op-e4") == other


def test_a_fact_quoted_inside_a_sentence_elsewhere_is_no_fact(copy):
    script, folder = copy
    edit_entry(folder, "op-e4", fact="Never confront a thief.")
    quote = b'remains closed. The sign "Never confront a thief." hangs there.\n'
    edit(folder / "op-c4.md", b"remains closed.\n", quote)
    lines = run(script, "check")[1]
    assert any("fact of op-e4 is not a sentence of op-e4.md alone" in line for line in lines), lines
    run(script, "build")
    assert fact_of(folder, "op-e4").startswith("Park on guarded ground")


def test_a_fact_that_is_gone_is_replaced_by_the_first_sentence_with_a_number(copy):
    script, folder = copy
    edit_entry(folder, "op-e4", fact="Gone.")
    run(script, "build")
    assert (
        fact_of(folder, "op-e4")
        == "Park on guarded ground whenever the freight is worth more than 20000 crowns."
    )


def test_another_folder_may_be_named(copy, tmp_path):
    _, folder = copy
    script = CORPUS / "fixture.py"
    assert run(script, "check", folder) == (0, ["fixture-check: 25 documents, all digests match"])
    (folder / "stray").write_text("x")
    status, lines = run(script, "check", folder)
    assert status == 1
    assert lines[0].startswith(f"{folder.as_posix()}/stray:1: ")
    status, lines = run(script, "check", tmp_path / "none")
    assert status == 1
    assert lines == [f"{(tmp_path / 'none').as_posix()}:1: no such folder; name the folder of the corpus"]
