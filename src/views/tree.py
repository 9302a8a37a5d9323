"""An outline as a tree at a terminal."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Final

from ..evidence.show import MOST
from ..fail.errors import InputError
from ..runtime.formats.escape import escape_build_log, truncate
from .outline import Node

if TYPE_CHECKING:
    from rich.text import Text

_UNCUT: Final = 100_000  # columns where no terminal is, so that no line is broken
_STYLES: Final = {"": "", "good": "green", "bad": "red", "wait": "yellow"}


def drawn(root: Node, width: int | None) -> str:
    """Return an outline as a tree.

    Args:
        root: The outline.
        width: The columns of the terminal; None where there is none, and so no colours.

    Raises:
        InputError: `rich` is not installed.
    """
    try:
        from rich.console import Console
        from rich.text import Text
        from rich.tree import Tree
    except ImportError:
        remedy = "run: pip install 'tachograph[views]'"
        raise InputError("needs the package rich", file="--tree", remedy=remedy) from None

    def label(node: Node) -> Text:
        # foreign text is not markup, and is harmless before it gets here
        text = escape_build_log(truncate(node.text, MOST))
        return Text.assemble((escape_build_log(node.at, MOST), "dim"), "  ", (text, _STYLES[node.tone]))

    def grow(tree: Tree, node: Node) -> Tree:
        for below in node.below:
            grow(tree.add(label(below)), below)
        return tree

    file = StringIO()
    console = Console(file=file, width=width or _UNCUT, force_terminal=bool(width))
    console.print(grow(Tree(label(root), guide_style="dim"), root))
    return file.getvalue()
