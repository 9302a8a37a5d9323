"""Results of policy tests as JUnit XML: one test suite a file, for whatever shows test results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from .policy_tests import Result

HEAD: Final = '<testsuites name="policy tests"'  # what a document of ours begins with, after its XML line
# what no XML 1.0 document can hold, escaped or not
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(suites: Sequence[tuple[str, Sequence[Result]]]) -> str:
    """Return the document for results by file. It holds no time and no host, so equal results give equal bytes."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"{HEAD}{_attributes(**_counts(r for _, rs in suites for r in rs))}>",
    ]
    for file, results in suites:
        lines.append(f"  <testsuite{_attributes(name=file, **_counts(results))}>")
        for result in results:
            lines += _case(result)
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _case(result: Result) -> list[str]:
    head = f"    <testcase{_attributes(classname=result.file, name=result.case.name)}"
    if result.ok:
        return [f"{head}/>"]
    failure = f"      <failure{_attributes(message=result.problem, type='policy')}>"
    text = escape(_clean(f"{result.place}: {result.problem}"))
    return [f"{head}>", f"{failure}{text}</failure>", "    </testcase>"]


def _counts(results: Iterable[Result]) -> dict[str, str]:
    ok = [result.ok for result in results]
    return {"tests": str(len(ok)), "failures": str(ok.count(False)), "errors": "0", "skipped": "0"}


def _attributes(**values: str) -> str:
    return "".join(f" {name}={quoteattr(_clean(value))}" for name, value in values.items())


def _clean(text: str) -> str:
    return _NO_XML.sub("", text)
