"""What is fuzzed: each target takes bytes, and raises where something comes out that must not.

`Finding` says that an oracle was broken; any other exception that leaves a target is a finding as well.
"""

from __future__ import annotations

import json
import posixpath
import tempfile
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from unicodedata import ucd_3_2_0 as old_unicode
from urllib.parse import unquote

import yaml

from fuzz.oracle import ROOT, Finding, gate, judged, judged_late, mode_of, need, read, same_place, sound
from tachograph.fail.errors import PolicyError
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats import canonical_json, strict_yaml
from tachograph.runtime.formats.canonical_json import Fragment, NotJson
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.mount_path import parse_path
from tachograph.runtime.resources.url import Allowlist, Malformed, parse_url
from tachograph.runtime.tools.contract import SHIPPED

URLS = (
    "https://corpus.test/op-a4.md",
    "HTTPS://Corpus.Test:443/a/b?x=1#y",
    "http://corpus.test/",
    "https://corpus.test@evil.test/",
    "https://corpus.test:8443/%2e%2e/a;b",
    "https://[2001:db8::1]:444/a",
    "https://1.2.3.4/docs/a//b?c?d#e#f",
    "https://xn--bcher-kva.test/docs/../a",
)
PATHS = ("corpus/op-a4.md", "sandbox/a/b.txt", "corpus/../x", "/etc/passwd", "sandbox/caf\u00e9", "a-b_c/..x")
JSON_TOKENS = ('{"', '":', ',"', "}", "[", "]", "null", "true", "1e9", "1.0", "-0", '"\\ud800"', "\\u0041")
URL_TOKENS = (
    *("https://", "http://", "corpus.test", "evil.test", "//", "/..", "/.", "%2e", "%2f", "%25", "%00"),
    *("\\", "@", ":", "#", "?", ";", "[::1]", "0x7f.1", "xn--", ":443", "\t", "\u3002"),
)


@dataclass(frozen=True)
class Target:
    """One thing to fuzz.

    Attributes:
        name: What the command line calls it.
        one: Takes one input, and raises where something is wrong.
        seeds: Inputs to begin with.
        tokens: Texts that mean something to it.
        longest: Bytes of an input.
        said: What to report at the end. A target with one makes its inputs from a number: coverage cannot guide it.
    """

    name: str
    one: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    tokens: tuple[str, ...] = ()
    longest: int = 2048
    said: Callable[[], str] | None = None


# ---- gate: a tool's name, counters, the text of the arguments, a line each ---------------------------


@lru_cache(maxsize=1)
def _gates() -> tuple[Gate, ...]:
    return gate(), gate("approve_write", "inform", "three_iterations")


def ask_gate(data: bytes) -> None:
    """Only sound decisions come out of the gate, and what it lets through goes where the policy allows."""
    name, _, rest = data.decode("utf-8", "replace").partition("\n")
    numbers, _, text = rest.partition("\n")
    used = [int(word) for word in numbers.split()[:5] if word.isdecimal() and len(word) < 15]
    used += [0] * (5 - len(used))
    call = read(name, text)
    counters = Counters(*used[:4])
    for _ in range(min(used[4], 4)):
        counters.count_result(call, "{}")
    for asked in _gates():
        judged(asked, call, counters)
        for refused in (asked.decide_step(counters), asked.decide_result(len(data), counters)):
            if refused is not None:
                sound(refused)
        if call.arguments is not None:
            judged_late(asked, call.arguments.value())


def _gate_seeds() -> Iterable[bytes]:
    given: dict[str, list[dict[str, Any]]] = {
        "fetch": [{"url": url} for url in URLS],
        "read": [{"path": path} for path in PATHS],
        "write": [{"path": path, "content": "x"} for path in PATHS],
        "search": [{"query": "seals", "top_k": 3}, {"query": "seals", "top_k": 0, "more": [1]}],
        "summarize": [{"text": "One. Two.", "max_sentences": 2}],
        "late": [
            {"rule": "url_allowlist", "target": URLS[0], "hop": 1},
            {"rule": "url_allowlist", "target": URLS[0], "address": "10.0.0.1"},
            {"rule": "sandbox_path", "path": PATHS[1], "access": "write"},
            {"rule": "sandbox_path", "path": PATHS[0], "access": "read", "found": "link"},
        ],
    }
    for name, several in given.items():
        for arguments in several:
            yield f"{name}\n0 0 0 0 0\n{json.dumps(arguments, ensure_ascii=False)}".encode()
    yield b'fetch\n10 50000 40 1000000 3\n{"url":"https://corpus.test/"}'
    yield b'write\n1 1 1 1 2\n{"path":"sandbox/x","content":"x","path":"corpus/x"}'


# ---- url ---------------------------------------------------------------------------------------------------

ENTRIES = (
    *("https://corpus.test/docs", "https://corpus.test/pub/", "http://corpus.test/"),
    *("https://1.2.3.4/docs", "https://[2001:db8::1]:444/a", "https://xn--bcher-kva.test/docs/"),
)


@lru_cache(maxsize=1)
def _allowlist() -> Allowlist:
    return Allowlist(ENTRIES)


def ask_url(data: bytes) -> None:
    """A URL goes to the same place with urllib and http.client; a prefix covers what it says."""
    text = data.decode("utf-8", "replace")
    try:
        target = parse_url(text)
    except Malformed as error:
        need(error.reason.isascii() and error.reason.isprintable(), f"a reason {error.reason!r}")
        return
    same_place(text, target)
    need(text.isprintable() and not set(text) & set(" \\"), f"readers differ on the characters of {text!r}")
    need(parse_url(target.url) == target, f"{target.url!r} is read as {parse_url(target.url)}")
    need(
        target.host.encode("idna").decode("ascii") == target.host, f"a resolver is asked for {target.host!r}"
    )
    index = _allowlist().match(target)
    if index is None:
        return
    entry = same_place(ENTRIES[index], parse_url(ENTRIES[index]))
    path = target.path
    for _ in range(9):  # as often as some server may decode it
        plain = posixpath.normpath(path.replace("\\", "/")) + ("/" if path.endswith("/") else "")
        covered = plain == entry.path or plain.startswith(entry.path.rstrip("/") + "/")
        need(
            covered or entry.path == "/", f"{text!r} is covered by {ENTRIES[index]!r}, and asks for {plain!r}"
        )
        path = unquote(path)


# ---- path --------------------------------------------------------------------------------------------------


def ask_path(data: bytes) -> None:
    """What is read as a path names one place below a mount, however a file system reads it."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        found = parse_path(text)
    except Malformed as error:
        need(error.reason.isascii() and error.reason.isprintable(), f"a reason {error.reason!r}")
        return
    mode_of(text)
    need(found.text == text, f"{text!r} became {found.text!r}")
    need(PurePosixPath(text).parts == (found.mount, *found.parts), f"{text!r} has the parts {found.parts}")
    below = posixpath.normpath(posixpath.join("/base", text))
    need(below == f"/base/{text}", f"{text!r} leads to {below!r}")
    if all(old_unicode.category(character) != "Cn" for character in text):  # the contract knows no later ones
        need(unicodedata.normalize("NFC", text) == text, "another spelling of the same name")
    need("\0" not in text and text.encode("utf-8") == data, "no name of a file")


# ---- policy ------------------------------------------------------------------------------------------------


def load_policy(data: bytes) -> bool:
    """Return whether a policy loads: else it is refused on one line with its place.

    One that loads is what another YAML reader reads, and decides.
    """
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        name = Path(file.name).name
        plain = _load_yaml(data, name)
        try:
            policy = Policy.load(file.name, root=Path(file.name).parent)
        except PolicyError as error:
            said = str(error)
            need(said.isprintable(), f"not one plain line: {said!r}")
            need(error.file == name and error.line is not None, f"no place: {said!r}")
            # a parser may put the end of a file on a line of its own
            need(1 <= (error.line or 0) <= data.count(b"\n") + 2, f"no line of the file: {said!r}")
            return False
    need(plain is not None, "a policy from YAML that is refused")
    need(canonical_json.encode(policy.data) == canonical_json.encode(plain), "a policy of other data")
    asked = Gate(policy, _gates()[0].tools)
    for wanted in (Call("tc_1_0", tool, Fragment("{}")) for tool in SHIPPED):
        found = asked.decide(wanted, Counters())
        need(found.rule_id != "gate_error", f"the gate failed: {found.reason}")
        document, mark, _ = found.at.partition("#")
        is_schema = found.rule_id == "arg_schema"
        need(mark and (document == name or is_schema), f"no document and pointer: {found.at!r}")
    return True


def _load_yaml(data: bytes, name: str) -> Any:
    """What the strict reader makes of a file, held against PyYAML; None where it refuses."""
    try:
        document = strict_yaml.load(data, name)
    except strict_yaml.YamlError as error:
        need(str(error).isprintable(), f"not one plain line: {error}")
        return None
    other = _other_yaml(data.decode("utf-8"))
    need(repr(other) == repr(document.data), f"PyYAML reads {other!r}, the strict reader {document.data!r}")
    lines = data.count(b"\n") + 1
    need(all(1 <= line <= lines for line, _ in document.marks.values()), "a mark outside the file")
    return document.data


def _other_yaml(text: str) -> Any:
    """PyYAML's own reading; its parser in Python refuses tabs that YAML and libyaml accept."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return yaml.load(text, Loader=yaml.CSafeLoader)


def _policy_seeds() -> Iterable[bytes]:
    yield (ROOT / "policy/v1.yaml").read_bytes()
    for overlay in sorted((ROOT / "policy/overlays").glob("*.yaml")):
        yield b"schema: policy/v1\ntool_registry: {allowed: [read, write]}\n" + overlay.read_bytes()
    yield b"schema: policy/v1\nurl_allowlist: &a ['https://a.test/']\nredact: []\n"
    yield b'{"schema": "policy/v1", "sandbox": {"mounts": {"a": "read"}}}\n'
    for word in WORDS:
        yield f"schema: policy/v1\nredact: [{word}]\n".encode()


# what YAML readers make different things of
WORDS = (
    *("yes", "Off", "~", "null", "TRUE", "=", "<<", "0o7", "07", "0x1f", "1_0", "12:30", "1e3", "+1", ".inf"),
    *(
        "-0",
        "1.",
        "2001-01-01",
        "2001-12-14t21:59:43.10-05:00",
        "y",
        "0b1",
        "'a'",
        '"\\x41"',
        "!!str a",
        "*a",
    ),
)


POLICY_TOKENS = (
    *("schema: policy/v1\n", "tool_registry:\n  allowed: [search]\n", "url_allowlist: []\n", "  - ", ": "),
    *("&a ", "*a", "!!str ", "<<: ", "? ", "|\n", ">-\n", "---\n", "...\n", "# ", "'", '"', "\\x41"),
    *("\t", "\r\n", "\u2028", "\ufeff", *WORDS),
)


# ---- json --------------------------------------------------------------------------------------------------

_REFUSED = (
    *("duplicate key", "NaN or infinity", "integer beyond 2^53", "lone surrogate", "nested too deeply"),
    *("a key beyond U+FFFF", "text too long"),
)


def read_json(data: bytes) -> None:
    """What is read as JSON is what the standard library reads; what is refused has a reason for it."""
    try:
        text = data.decode("utf-8", "surrogatepass")  # a model's text may hold half a character
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    twice = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice.append(pairs)
        return found

    try:
        other: Any = json.loads(text, object_pairs_hook=members)
    except (ValueError, RecursionError):
        other = Finding
    try:
        frozen = canonical_json.parse(text)
    except NotJson as error:
        need(error.reason in _REFUSED or other is Finding, f"refused as {error.reason!r}, and is {other!r}")
        return
    need(other is not Finding, "read, and is no JSON for the standard library")
    need(not twice, f"a member given twice was read: {twice!r}")
    need(frozen.value() == other, f"read as {frozen.value()!r}, and is {other!r}")
    need(canonical_json.parse(frozen.text) == frozen, "canonical text that is read as other text")
    need(canonical_json.freeze(other) == frozen, "the same data has two canonical texts")
    again = json.dumps(json.loads(frozen.text), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    need(
        "." in frozen.text or "e" in frozen.text or again == frozen.text, f"{frozen.text!r} is not canonical"
    )


JSON_SEEDS = (
    b'{"a": [1, 2.5, -3e-7, true, null], "b": {"c": "d\\n\\u00e9\\ud83d\\ude00"}}',
    b'{"a":1,"a":2}',
    b'["\\ud800", NaN, 1e400, 9007199254740993, 1.0e2]',
    b" [[[[[[]]]]]]\t",
    b'{"url":"https://corpus.test/","\xf0\x9f\x98\x80":1}',
)

# ---- all of them -------------------------------------------------------------------------------------------


def _texts(texts: Iterable[str]) -> Callable[[], Iterable[bytes]]:
    return lambda: (text.encode() for text in texts)


def targets() -> dict[str, Target]:
    """Every target by name."""
    from fuzz import costs, records

    several = (
        Target("gate", ask_gate, _gate_seeds, (*JSON_TOKENS, *URL_TOKENS, *SHIPPED, '"rule":', '"found":')),
        Target("url", ask_url, _texts((*URLS, *ENTRIES)), URL_TOKENS, 512),
        Target("path", ask_path, _texts(PATHS), ("corpus", "/", "..", "/./", "\\", "~", "C:", "\u202e"), 512),
        Target("policy", load_policy, _policy_seeds, POLICY_TOKENS),
        Target("json", read_json, lambda: JSON_SEEDS, JSON_TOKENS, 1024),
        Target("ledger", records.change_ledger, records.ledger_seeds, records.TOKENS, 512),
        Target("cost", costs.measure, costs.seeds, longest=16, said=costs.said),
        Target("record", records.change_files, records.file_seeds, records.TOKENS, 512),
    )
    return {each.name: each for each in several}
