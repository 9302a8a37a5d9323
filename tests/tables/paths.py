"""Ways to write a path. A file has one spelling; everything else is refused or names another file.

Each case says what must come of it, by how it was made:

- `denied`: the gate refuses it as a path;
- `missing`: it is a name of its own, which no file has yet; reading finds nothing, writing makes that
  very file;
- `done`: it is the one spelling of a file that is there.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

DENIED, MISSING, DONE = "denied", "missing", "done"
MOUNTS = {"box": "write", "books": "read", "box-two": "read"}
FILES = ("box/plan.md", "box/a/b.md", "books/guide.md", "box-two/plan.md", "box/caf\u00e9.md")
PLAIN = FILES[:4]
MAX_PATH, MAX_PART = 1024, 255


@dataclass(frozen=True, slots=True)
class Case:
    path: str
    expect: str


def _by_mount(path: str) -> Case:
    """A name of its own if it stands below a mount, else nothing that can be named."""
    mount, slash, rest = path.partition("/")
    return Case(path, MISSING if slash and rest and mount in MOUNTS else DENIED)


def _dot_segments() -> Iterator[Case]:
    for base in PLAIN:
        parts = base.split("/")
        for inserted, at in itertools.product(
            ([""], ["."], [".."], [".", ".."], ["x", ".."]), range(len(parts) + 1)
        ):
            yield Case("/".join([*parts[:at], *inserted, *parts[at:]]), DENIED)
    for depth, start in itertools.product(range(1, 7), ("box/", "box/a/", "books/./", "")):
        yield Case(f"{start}{'../' * depth}outside/secret.md", DENIED)


def _dots_in_names() -> Iterator[Case]:
    for dots, place in itertools.product(range(3, 9), ("box/{0}", "box/a/{0}/plan.md", "box/a/{0}.md")):
        yield Case(place.format("." * dots), MISSING)
    for name, place in itertools.product(
        (".a", "..a", "a..", "a.", ".. .", ". ", ".. ", " ..", "..\u00b7", "._", "-.."),
        ("box/{0}", "books/{0}/x", "box/a/{0}"),
    ):
        yield Case(place.format(name), MISSING)


_ENCODERS: tuple[Callable[[int], str], ...] = (
    lambda c: f"%{c:02x}",
    lambda c: f"%{c:02X}",
    lambda c: f"%25{c:02x}",
    lambda c: f"%u00{c:02x}",
    lambda c: f"%{0xC0 | c >> 6:02x}%{0x80 | c & 0x3F:02x}",
    lambda c: f"&#{c};",
    lambda c: f"&#x{c:x};",
    lambda c: f"={c:02X}",
    lambda c: f"+{c:02x}-",
)


def _encodings() -> Iterator[Case]:
    for base, encode in itertools.product(PLAIN, _ENCODERS):
        for i, letter in enumerate(base):
            yield _by_mount(base[:i] + encode(ord(letter)) + base[i + 1 :])
    for up in ("%2e%2e", "%252e%252e", "%c0%ae%c0%ae", "&#46;&#46;", "%2e.", ".%2e"):
        yield Case(f"box/{up}/outside/secret.md", MISSING)
        yield Case(f"box/{up}%2foutside%2fsecret.md", MISSING)


def _backslashes() -> Iterator[Case]:
    escapes = ["\\", "\\\\", "\\x2e", "\\u002e", "\\056", "\\n", "\\0", "\\ "]
    for base, text in itertools.product(PLAIN, escapes):
        for i, letter in enumerate(base):
            if letter in "/.":
                yield Case(base[:i] + text + base[i + 1 :], DENIED)
    for start in ("\\", "\\\\", "\\\\host\\share\\", "\\\\?\\C:\\", "..\\", "box/..\\", "box\\..\\..\\"):
        yield from (Case(start + base, DENIED) for base in PLAIN)


def _lookalikes() -> Iterator[Case]:
    for base in PLAIN:
        for i, letter in enumerate(base):
            others = {"/": "\u2215\u2044\uff0f\u29f8\u2571", ".": "\u2024\uff0e\u3002\u00b7\u06d4"}.get(
                letter
            )
            if others is None:
                others = chr(ord(letter) + 0xFEE0)
                others += chr(0x1D41A + ord(letter) - 0x61) if letter.isalpha() else "\u2010\u2212"
            yield from (_by_mount(base[:i] + other + base[i + 1 :]) for other in others)
    for up in ("\u2025", "\uff0e\uff0e", "\u2024\u2024", "\u00b7\u00b7", "\u3002\u3002"):
        yield Case(f"box/{up}/outside/secret.md", MISSING)


def _normalization() -> Iterator[Case]:
    """Characters with more than one form: the composed one is a name, any other is refused."""
    composed = [chr(c) for c in range(0xC0, 0x250) if unicodedata.decomposition(chr(c))[:1] not in ("", "<")]
    singletons = "\u212a\u2126\u212b\u0340\u0341\u0374\u037e\u1f71\u2000\u2001\uf900\ufa10"
    for letter in composed[::3]:
        yield Case(f"box/{letter}.md", MISSING)
        yield Case(f"box/{unicodedata.normalize('NFD', letter)}.md", DENIED)
    yield from (Case(f"box/a/{letter}", DENIED) for letter in singletons)
    yield Case(unicodedata.normalize("NFD", FILES[4]), DENIED)


_UNSEEN = [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5]
_UNSEEN += [*range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070)]
_UNSEEN += [0x2800, 0x3164, 0xE000, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0, *range(0xFFF9, 0xFFFC)]
_UNSEEN += [0xFFFE, 0xE0001, 0xE0041, 0xE007F, 0xE0100, 0xF0000]


def _unseen() -> Iterator[Case]:
    forms = (
        "{c}box/plan.md",
        "bo{c}x/plan.md",
        "box{c}/plan.md",
        "box/{c}plan.md",
        "box/plan{c}.md",
        "box/plan.md{c}",
    )
    for code, form in itertools.product(_UNSEEN, forms):
        yield Case(form.format(c=chr(code)), DENIED)
    yield from (Case(f"box/plan.md{chr(code)}/../../outside/secret.md", DENIED) for code in (0, 10, 0x202E))


def _blanks() -> Iterator[Case]:
    """White space that is drawn: never trimmed, never folded."""
    for blank, base in itertools.product("\x20\xa0\u1680\u2002\u2003\u2009\u202f\u205f\u3000", PLAIN):
        mount, _, rest = base.partition("/")
        for path in (f"{blank}{base}", f"{mount}{blank}/{rest}", f"{mount}/{blank}{rest}", f"{base}{blank}"):
            yield _by_mount(path)


def _lengths() -> Iterator[Case]:
    """Around the limits of a part and of a path, which count bytes of UTF-8."""
    for letter, off, form in itertools.product(
        "a\u00e9\u65e5\U0001f600", range(-2, 3), ("box/{0}", "box/x/{0}", "box/y/{0}/x")
    ):
        part = letter * (MAX_PART // len(letter.encode()) + off)
        yield Case(form.format(part), DENIED if len(part.encode()) > MAX_PART else MISSING)
    for letter, total in itertools.product("a\u00e9\u65e5\U0001f600", range(MAX_PATH - 4, MAX_PATH + 5)):
        path = "box"
        while len(path.encode()) < total - 240:
            path += "/" + letter * (120 // len(letter.encode()))
        path += "/" + "z" * (total - len(path.encode()) - 1)
        yield Case(path, DENIED if total > MAX_PATH else MISSING)
    yield from (Case("box/" + "d/" * depth + "x", DENIED) for depth in (511, 600, 50_000))


def _neighbouring_mounts() -> Iterator[Case]:
    names = set()
    for mount in MOUNTS:
        names |= {
            mount + tail for tail in ("2", "s", "x", ".", "-", "_", " ", "~", ":", "\u00b9", "%20", "/..")
        }
        names |= {head + mount for head in ("x", ".", "-", "_", " ", "0", "\u00b7", "@", "$")} | {
            mount[:-1],
            mount * 2,
        }
    names |= {
        "",
        "outside",
        "sandbox",
        "tmp",
        "etc",
        "proc",
        "mnt",
        "a",
        "box,books",
        "box|books",
        "b*x",
        "b?x",
    }
    for name, rest in itertools.product(sorted(names - set(MOUNTS)), ("plan.md", "a/b.md", "guide.md")):
        yield Case(f"{name}/{rest}", DENIED)
    for alone in [*MOUNTS, *sorted(names)]:
        yield from (Case(alone + tail, DENIED) for tail in ("", "/", "//"))


def _absolute() -> Iterator[Case]:
    starts = (
        "/ // /// ~/ ~ ~root/ ~+/ ./ ../ file: file:/ file:// file:/// C: c:/ C:\\ http:// https://docs.test/"
    )
    starts += " smb:// data:, box: //host/share/ /proc/self/cwd/ /proc/self/root/ /dev/fd/3/ $HOME/ ${HOME}/"
    starts += " $(pwd)/ %HOME%/ %2f %2e/ - -- @ | > < * ?/ [b] {box,books}/ `pwd`/ 'box/ \"box/ ; && #"
    for start, base in itertools.product(starts.split(), PLAIN):
        yield Case(start + base, DENIED)
    for host in ("etc/passwd", "proc/self/environ", "dev/null", "proc/self/fd/0", "var/log/syslog"):
        yield from (Case(start + host, DENIED) for start in ("/", "//", "file:///", "/./", "/../", "box//"))


def _case_of_letters() -> Iterator[Case]:
    for base in PLAIN:
        letters = [i for i, letter in enumerate(base) if letter.isalpha()]
        for chosen in (*itertools.combinations(letters, 1), *itertools.combinations(letters[:8], 2), letters):
            yield _by_mount("".join(c.upper() if i in chosen else c for i, c in enumerate(base)))


def _tails() -> Iterator[Case]:
    """What some system drops from the end of a name, expands, or takes for a device."""
    tails = ". .. ... ::$DATA :x ;1 ~1 %00 %20 # ? * | < > \" ' ` & $ ! ^ @ ~ , + = - .lnk .bak"
    tails += " ,v $(id) `id` {,x} []"
    for tail, base in itertools.product(tails.split(), PLAIN):
        yield Case(base + tail, MISSING)
    for name, end in itertools.product(("CON", "NUL", "aux", "com1", "LPT9", "PLAN~1.MD"), ("", ".md", ":")):
        yield Case(f"box/{name}{end}", MISSING)
    yield from (
        Case(base + tail, DENIED) for base in PLAIN for tail in ("/", "/.", "/..", "//", "/./", "/x/..")
    )


SPELLINGS: dict[str, Callable[[], Iterator[Case]]] = {
    "dot segments": _dot_segments, "dots in names": _dots_in_names, "encodings": _encodings,
    "backslashes": _backslashes, "lookalikes": _lookalikes, "normalization": _normalization,
    "unseen characters": _unseen, "blanks": _blanks, "lengths": _lengths, "case": _case_of_letters,
    "neighbouring mounts": _neighbouring_mounts, "absolute": _absolute, "tails": _tails,
}  # fmt: skip


def plain_names() -> Iterator[Case]:
    """Names that look odd and are plain all the same, one file each."""
    names = [
        "a b.md",
        "-rf",
        ".hidden",
        "...",
        "\u65e5\u672c\u8a9e.md",
        "na\u00efve.md",
        "\U0001f600.md",
        "100%.md",
    ]
    names += [
        "a%2fb.md",
        "x;y",
        "$HOME",
        "it's",
        'a"b',
        "a|b",
        "con",
        "a:b",
        "CAPS.MD",
        "~tilde",
        "*.md",
        "#1",
    ]
    names += [
        "a,b",
        "{x}",
        "[y]",
        "(z)",
        "a&b",
        "a=b",
        "a+b",
        "a@b",
        "<x>",
        "!",
        "?",
        "^",
        "`",
        "_",
        "0",
        "a.b.c",
    ]
    for mount, name, folder in itertools.product(("box", "books"), names, ("", "in a folder/")):
        yield Case(f"{mount}/{folder}{name}", DONE)
