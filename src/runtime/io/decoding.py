"""Read the bytes of files and pages as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_CHARSET: Final = r"(?i);\s*charset\s*=\s*\"?([^\s\";]{1,40})"  # compiled for the first page from the network
# what a page is decoded with, by the name that it gives; under any other name it is taken for UTF-8
_CHARSETS: Final = dict(
    pair.split("=")
    for pair in (
        "us-ascii=cp1252 ascii=cp1252 iso-8859-1=cp1252 latin1=cp1252 windows-1252=cp1252 cp1252=cp1252 "
        "iso-8859-2=iso8859-2 iso-8859-5=iso8859-5 iso-8859-7=iso8859-7 iso-8859-9=cp1254 iso-8859-15=iso8859-15 "
        "windows-1250=cp1250 windows-1251=cp1251 windows-1253=cp1253 windows-1254=cp1254 windows-1256=cp1256 "
        "koi8-r=koi8-r koi8-u=koi8-u shift_jis=cp932 windows-31j=cp932 euc-jp=euc-jp big5=big5 euc-kr=cp949 "
        "gb2312=gb18030 gbk=gb18030 gb18030=gb18030 utf-16=utf-16-le utf-16le=utf-16-le utf-16be=utf-16-be"
    ).split()
)
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


def text_of_body(body: bytes, headers: Mapping[str, str]) -> str:
    """Decode a body by its byte order mark, else by its charset if that is a known one, else as UTF-8."""
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    charset = re.search(_CHARSET, headers.get("content-type", ""))
    return body.decode(_CHARSETS.get(charset[1].lower(), "utf-8") if charset else "utf-8", "replace")


def text_of_file(data: bytes) -> str:
    """Return the text of a file. Raises OSError where it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError("the file is not UTF-8 text") from None
