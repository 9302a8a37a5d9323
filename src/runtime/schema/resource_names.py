"""Tell which properties of a tool's arguments look like a URL, a host or a path, by name and by description."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..formats.lazy_pattern import lazy_pattern

_NAMES: Final = frozenset(
    "url urls uri uris iri iris href hrefs link links permalink permalinks hyperlink hyperlinks "
    "shortlink symlink endpoint endpoints host hosts hostname hostnames vhost fqdn netloc domain "
    "domains subdomain subdomains website websites webpage webpages homepage site sites sitemap "
    "server servers nameserver feed feeds webhook webhooks callback redirect redirects proxy proxies "
    "socket sockets dsn jdbc ip ips ipaddr ipv cidr path paths pathname pathnames dirpath fpath file "
    "files fname filename filenames filepath filepaths attachment attachments dir dirs dirname "
    "basedir homedir rootdir subdir subdirs tmpdir workdir outdir directory directories folder "
    "folders cwd root workspace workspaces repo repos repository repositories src dst dest "
    "destination directoryname domainname filelist subnet subnets".split()
)
# run together with another word: baseurl, imageURLs, outputpath, logfile; but not profile
_ENDS: Final = lazy_pattern(
    r"(?:(?<!c)url|uri|href|path|(?<!pro)file|filename|dirname|directory|folder|hostname|endpoint|webhook|website)s?\Z"
)
# words that may mean anything: what is said of the property decides
_PERHAPS: Final = frozenset(
    "addr address addresses anchor api archive asset assets audio avatar backend base blob bucket "
    "config conf container db dbname document documents doc docs download gateway glob globs icon "
    "image images img imgs include input inputs loc location locations locator logo log logs media "
    "mount origin out output outputs page pages pattern patterns photo photos picture pictures prefix "
    "project ref reference references referer referrer remote resource resources sandbox script "
    "scripts service settings source sources store target targets template templates thumbnail upload "
    "video videos volume web".split()
)
_PERHAPS_ALONE: Final = frozenset(
    "entry entries from item items name names next object objects save to value values where".split()
)
# what a resource's own parts are called
_OF_A_PARENT: Final = frozenset(
    "addr address authority base entries entry full full_name id ids item items key keys loc location "
    "name names object part parts prefix raw ref reference resource rest scheme segment segments "
    "source sources src string suffix target targets text value values".split()
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[A-Za-z]+")
_SAID = lazy_pattern(
    r"(?<![@.])\b(?:ur[il]s?|iris?|hrefs?|links?|https?|hosts?|hostnames?|domains?|endpoints?|web ?(?:sites?|pages?)|"
    r"paths?|pathnames?|files?|filenames?|filepaths?|folders?|director(?:y|ies)|ip address(?:es)?)\b|://",
    re.IGNORECASE,
)
_SHOWN = lazy_pattern(r"[A-Za-z][A-Za-z0-9+.-]*://|www\.\w|(?:~|\.{1,2})?/[\w.-]|[A-Za-z]:\\|\\\\\w")
_ASKED = lazy_pattern(r":\\?/\\?/|\^\(?(?:\?:)?\\?/")


def looks_like_resource(name: str) -> bool:
    """Return whether a property's name suggests a URL, a host or a path.

    So does a name with non-ASCII or unprintable characters, which could disguise it.
    """
    if not (name.isascii() and name.isprintable()):
        return True
    words = [word.lower() for word in _words(name)]
    if any(word in _NAMES for word in words):
        return True
    return any(_ENDS.search(run) or run in _NAMES for run in _LETTERS.findall(name.lower()))


def _words(name: str) -> list[str]:
    """Return the words of a name; single letters in a row count as one word, as in u-r-l."""
    out: list[str] = []
    alone = False
    for word in _WORD.findall(name):
        if len(word) == 1 and alone:
            out[-1] += word
        else:
            out.append(word)
        alone = len(word) == 1
    return out


def is_part_name(name: str) -> bool:
    """Return whether a name means nothing by itself and belongs to its parent, as the `name` of a `file`."""
    return name.lower() in _OF_A_PARENT


def is_called_resource(name: str | None, schemas: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the schemas of a property say that it is a URL, a host or a path.

    A format, an example or a pattern says so under any name; a title and a description under a name that may mean
    anything, such as `source`.
    """
    vague = name is not None and _is_vague(name)
    return any(_shows(schema) or (vague and _says(schema)) for schema in schemas)


def _is_vague(name: str) -> bool:
    return name.lower() in _PERHAPS_ALONE or any(word.lower() in _PERHAPS for word in _words(name))


def _shows(schema: Mapping[str, Any]) -> bool:
    form, pattern = schema.get("format"), schema.get("pattern")
    if isinstance(form, str) and looks_like_resource(form):
        return True
    if isinstance(pattern, str) and _ASKED.search(pattern):
        return True
    examples = schema.get("examples")
    shown = [schema.get("default"), schema.get("example"), *(examples if isinstance(examples, list) else ())]
    return any(isinstance(text, str) and _SHOWN.match(text) for text in shown)


def _says(schema: Mapping[str, Any]) -> bool:
    texts = (schema.get("title"), schema.get("description"))
    return any(isinstance(text, str) and _SAID.search(text) for text in texts)
