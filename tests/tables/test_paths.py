"""Ways to write a path. A file has one spelling; everything else is refused or names another file.

Each path is decided when proposed, and read and written by a tool of a run, on a real tree. How a case is made says
what comes of it:

- `denied`: the gate refuses it as a path;
- `missing`: it is a name of its own, which no file has yet; reading finds nothing, writing makes that very file;
- `done`: it is the one spelling of a file that is there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.log.steps import steps_of
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import decide, run
from tests.tables.rows import Made, closed, roomy, rows

DENIED, MISSING, DONE = "denied", "missing", "done"
MOUNTS = {"box": "write", "books": "read", "box-two": "read"}
FILES = ("box/plan.md", "box/a/b.md", "books/guide.md", "box-two/plan.md", "box/caf\u00e9.md")
PLAIN = FILES[:4]
SECRET, WRITTEN = "the secret of the house", "written by a call"
Case = tuple[str, str]


def _by_mount(path: str) -> Case:
    """A name of its own if it stands below a mount, else nothing that can be named."""
    mount, slash, rest = path.partition("/")
    return path, MISSING if slash and rest and mount in MOUNTS else DENIED


def _dot_segments() -> Iterator[Case]:
    for parts in (base.split("/") for base in PLAIN):
        for more, at in product((("",), (".",), ("..",), (".", ".."), ("x", "..")), range(len(parts) + 1)):
            yield "/".join([*parts[:at], *more, *parts[at:]]), DENIED
    for depth, start in product(range(1, 7), ("box/", "box/a/", "books/./", "")):
        yield f"{start}{'../' * depth}outside/secret.md", DENIED


def _dots_in_names() -> Iterator[Case]:
    names = [
        ".a", "..a", "a..", "a.", ".. .", ". ", ".. ", " ..", "..\u00b7", "._", "-..", "...", "....", "." * 8,
    ]  # fmt: skip
    for name, form in product(names, ("box/{0}", "books/{0}/x", "box/a/{0}", "box/a/{0}.md")):
        yield form.format(name), MISSING


def _encodings() -> Iterator[Case]:
    forms = "%{c:02x} %{c:02X} %25{c:02x} %u00{c:02x} %{a:02x}%{b:02x} &#{c}; &#x{c:x}; ={c:02X} +{c:02x}-"
    for base, form in product(PLAIN, forms.split()):
        for i, c in enumerate(map(ord, base)):
            yield _by_mount(base[:i] + form.format(c=c, a=0xC0 | c >> 6, b=0x80 | c & 0x3F) + base[i + 1 :])
    for up in ("%2e%2e", "%252e%252e", "%c0%ae%c0%ae", "&#46;&#46;", "%2e.", ".%2e"):
        yield f"box/{up}/outside/secret.md", MISSING
        yield f"box/{up}%2foutside%2fsecret.md", MISSING


def _backslashes() -> Iterator[Case]:
    for base, text in product(PLAIN, ("\\", "\\\\", "\\x2e", "\\u002e", "\\056", "\\n", "\\0", "\\ ")):
        places = [i for i, letter in enumerate(base) if letter in "/."]
        yield from ((base[:i] + text + base[i + 1 :], DENIED) for i in places)
    for start in ("\\", "\\\\", "\\\\host\\share\\", "\\\\?\\C:\\", "..\\", "box/..\\", "box\\..\\..\\"):
        yield from ((start + base, DENIED) for base in PLAIN)


def _lookalikes() -> Iterator[Case]:
    drawn = {"/": "\u2215\u2044\uff0f\u29f8\u2571", ".": "\u2024\uff0e\u3002\u00b7\u06d4"}
    for base in PLAIN:
        for i, letter in enumerate(base):
            other = chr(0x1D41A + ord(letter) - 0x61) if letter.isalpha() else "\u2010\u2212"
            for character in drawn.get(letter, chr(ord(letter) + 0xFEE0) + other):
                yield _by_mount(base[:i] + character + base[i + 1 :])
            yield _by_mount(base[:i] + (letter.upper() if letter.isalpha() else "_") + base[i + 1 :])
    for up in ("\u2025", "\uff0e\uff0e", "\u2024\u2024", "\u00b7\u00b7", "\u3002\u3002"):
        yield f"box/{up}/outside/secret.md", MISSING


def _normalization() -> Iterator[Case]:
    """Characters with more than one form: the composed one is a name, any other is refused."""
    composed = [chr(c) for c in range(0xC0, 0x250) if unicodedata.decomposition(chr(c))[:1] not in ("", "<")]
    for letter in composed[::3]:
        yield f"box/{letter}.md", MISSING
        yield f"box/{unicodedata.normalize('NFD', letter)}.md", DENIED
    singletons = "\u212a\u2126\u212b\u0340\u0341\u0374\u037e\u1f71\u2000\u2001\uf900\ufa10"
    yield from ((f"box/a/{letter}", DENIED) for letter in singletons)
    yield unicodedata.normalize("NFD", FILES[4]), DENIED
    yield "box/\U00011099\U000110ba.md", MISSING  # composed since Unicode 5.2, and 3.2 is what counts


UNSEEN = [
    *range(0x20), *range(0x7F, 0xA0), 0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810),
    *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0x2800, 0x3164, 0xE000, 0x1D159,
    *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0, *range(0xFFF9, 0xFFFD), 0xFFFE, 0xE0001, 0xE0041, 0xE007F, 0xE0100, 0xF0000,
]  # fmt: skip


def _unseen() -> Iterator[Case]:
    forms = "{c}box/plan.md b{c}ox/plan.md box{c}/plan.md box/{c}plan.md box/a{c}.md box/plan.md{c}".split()
    yield from ((form.format(c=chr(code)), DENIED) for code, form in product(UNSEEN, forms))


def _blanks() -> Iterator[Case]:
    """White space that is drawn: never trimmed, never folded."""
    for blank, base in product("\x20\xa0\u1680\u2002\u2003\u2009\u202f\u205f\u3000", PLAIN):
        mount, _, rest = base.partition("/")
        for path in (f"{blank}{base}", f"{mount}{blank}/{rest}", f"{mount}/{blank}{rest}", f"{base}{blank}"):
            yield _by_mount(path)


def _lengths() -> Iterator[Case]:
    """Around the limits of a part and of a path, 255 and 1024 bytes of UTF-8."""
    letters = "a\u00e9\u65e5\U0001f600"
    for letter, more, form in product(letters, range(-2, 3), ("box/{0}", "box/x/{0}", "box/y/{0}/x")):
        part = letter * (255 // len(letter.encode()) + more)
        yield form.format(part), DENIED if len(part.encode()) > 255 else MISSING
    for letter, total in product(letters, range(1020, 1029)):
        path = "box"
        while len(path.encode()) < total - 240:
            path += "/" + letter * (120 // len(letter.encode()))
        path += "/" + "z" * (total - len(path.encode()) - 1)
        yield path, DENIED if total > 1024 else MISSING
    yield from (("box/" + "d/" * depth + "x", DENIED) for depth in (511, 600, 50_000))


def _neighbouring_mounts() -> Iterator[Case]:
    names = {"", *"outside sandbox tmp etc proc mnt a box,books box|books b*x b?x".split()}
    for mount in MOUNTS:
        names |= {mount + tail for tail in (" ", "\u00b9", "%20", "/..", *"2sx.-_~:")}
        names |= {head + mount for head in "x.-_ 0\u00b7@$"} | {mount[:-1], mount * 2}
    for name, rest in product(sorted(names - set(MOUNTS)), ("plan.md", "a/b.md", "guide.md")):
        yield f"{name}/{rest}", DENIED
    for alone, tail in product([*MOUNTS, *sorted(names)], ("", "/", "//")):
        yield alone + tail, DENIED


def _absolute() -> Iterator[Case]:
    starts = "/ // /// ~/ ~ ~root/ ~+/ ./ ../ file: file:/ file:// file:/// C: c:/ C:\\ http:// smb:// data:,"
    starts += (
        " https://a.test/ box: //host/share/ /proc/self/cwd/ /proc/self/root/ /dev/fd/3/ $HOME/ ${HOME}/"
    )
    starts += " $(pwd)/ %HOME%/ %2f %2e/ - -- @ | > < * ?/ [b] {box,books}/ `pwd`/ 'box/ \"box/ ; && #"
    yield from ((start + base, DENIED) for start, base in product(starts.split(), PLAIN))
    for host in ("etc/passwd", "proc/self/environ", "dev/null", "proc/self/fd/0", "var/log/syslog"):
        yield from ((start + host, DENIED) for start in ("/", "//", "file:///", "/./", "/../", "box//"))


def _tails() -> Iterator[Case]:
    """What some system drops from the end of a name, expands, or takes for a device."""
    tails = ". .. ... ::$DATA :x ;1 ~1 %00 %20 # ? * | < > \" ' ` & $ ! ^ @ ~ , + = - .lnk .bak ,v $(id) `id` {,x} []"
    yield from ((base + tail, MISSING) for tail, base in product(tails.split(), PLAIN))
    for name, end in product(("CON", "NUL", "aux", "com1", "LPT9", "PLAN~1.MD"), ("", ".md", ":")):
        yield f"box/{name}{end}", MISSING
    yield from ((base + tail, DENIED) for base in PLAIN for tail in ("/", "/.", "/..", "//", "/./", "/x/.."))


SPELLINGS = [
    _dot_segments, _dots_in_names, _encodings, _backslashes, _lookalikes, _normalization, _unseen, _blanks,
    _lengths, _neighbouring_mounts, _absolute, _tails,
]  # fmt: skip


def _plain_names() -> Iterator[Case]:
    """Names that look odd and are plain all the same, one file each."""
    names = (
        "-rf .hidden ... \u65e5\u672c\u8a9e.md na\u00efve.md \U0001f600.md 100%.md it's con CAPS.MD".split()
    )
    names += 'a%2fb.md x;y $HOME a"b a|b a:b ~tilde *.md #1 a,b {x} [y] (z) a&b a=b a+b a@b <x>'.split()
    for mount, name, folder in product(("box", "books"), ["a b.md", *names, *"?^`_0!"], ("", "in a folder/")):
        yield f"{mount}/{folder}{name}", DONE


TEXT = {"type": "string"}
POLICY = roomy(["read", "write", "use"], sandbox={"mounts": MOUNTS}, on_deny="inform")
MARKED = [
    {"name": name, "effect": name, "input_schema": closed(path={**TEXT, "x-resource": f"path:{name}"})}
    for name in ("read", "write")
]


def _use(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """Read or write a file; the path is marked nowhere, so `io` alone meets it."""
    try:
        if arguments["access"] == "read":
            return {"said": io.read(arguments["path"])}
        io.write(arguments["path"], WRITTEN)
    except FileNotFoundError:
        return {"said": MISSING}
    return {"said": WRITTEN}


USE = Tool("use", "", closed(path=TEXT, access=TEXT), closed(said=TEXT), "write", _use, idempotent=True)


def performed(root: Path, access: str, paths: list[str]) -> list[str]:
    """Return what comes of each path: `denied`, `missing`, or what is read or written."""
    early = decide(POLICY, MARKED, [{"name": access, "arguments": {"path": path}} for path in paths])
    asked = [{"tool": "use", "arguments": {"path": path, "access": access}} for path in paths]
    turns = [{"calls": asked[at : at + 64]} for at in range(0, len(asked), 64)]
    done = run(POLICY, [USE], [*turns, {"answer": "done"}], mounts={name: root / name for name in MOUNTS})
    assert done.ending == "final_answer"
    found = []
    calls = [call for step in steps_of(done.events) for call in step.calls]
    for decision, call in zip(early, calls, strict=True):
        # what the gate lets pass when it is proposed is not refused by `io`, and the other way round
        assert (call.late is None) == (decision.decision == "allow")
        assert call.late is None or call.late.rule == decision.rule_id == "sandbox_path"
        found.append(DENIED if call.late else call.attempts[0].outcome.result["said"])  # type: ignore[attr-defined]
    return found


def wanted(case: Case, access: str) -> str:
    path, expect = case
    if expect == DENIED or (access == "write" and MOUNTS[path.partition("/")[0]] == "read"):
        return DENIED
    return WRITTEN if access == "write" else path if expect == DONE else MISSING


def tree(root: Path, files: tuple[str, ...]) -> Path:
    """Make the mounts with files that hold their own path, and a folder outside of them."""
    for name in (*files, *(f"{mount}/.kept" for mount in MOUNTS), "outside/secret.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(SECRET if name.startswith("outside") else name)
    return root


def contents(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def hold(root: Path, cases: list[Case]) -> None:
    """Read all, then write all; what was to be written stands where it was to be, and nothing else changed."""
    expected = contents(root)
    for access in ("read", "write"):
        got = performed(root, access, [path for path, _ in cases])
        assert [row for row in zip(cases, got, strict=True) if row[1] != wanted(row[0], access)] == []
    written = [case[0] for case in cases if wanted(case, "write") == WRITTEN]
    assert contents(root) == expected | dict.fromkeys(written, WRITTEN)


@pytest.mark.parametrize("made", SPELLINGS)
def test_a_file_has_one_spelling(made: Made, tmp_path: Path) -> None:
    hold(tree(tmp_path, FILES), rows(made()))


def test_odd_names_are_plain_files(tmp_path: Path) -> None:
    cases = rows(_plain_names())
    hold(tree(tmp_path, tuple(path for path, _ in cases)), cases)
