"""What the CI of a new project installs: a version of the package, a wheel, or a Git URL."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ..fail.errors import InputError

NAME: Final = "tachograph"
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*([A-Za-z0-9.!+]*)")
_URL: Final = re.compile(r"[\x21-\x7e]+")
_FORMS: Final = (
    "give a version (1.2.3), a wheel (dist/x.whl, https://.../x.whl) or git+https://HOST/PATH@COMMIT"
)


def requirement_of(spec: str, folder: Path, top: Path) -> str:
    """Return what `pip install` is given in the project, for what a person named.

    Args:
        spec: A version, a wheel as a file or an address, or a Git URL.
        folder: The project, in which CI runs its commands.
        top: The top of its repository, which CI has.

    Raises:
        InputError: It is none of these, holds a password, or is a file that CI would not have.
    """
    if _VERSION.fullmatch(spec):
        return f"{NAME}=={spec}"
    if spec.startswith(("git+https://", "git+ssh://", "https://")):
        parts = urlsplit(spec.removeprefix("git+"))
        if not _URL.fullmatch(spec) or not parts.hostname:
            raise InputError("--install is not an address", remedy=_FORMS)
        if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
            raise InputError(
                "--install holds a password, which everyone could read in the workflow",
                remedy="leave it out, and let CI log in by itself",
            )
        if spec.startswith("git+") or parts.path.endswith(".whl"):
            return spec
    elif spec.endswith(".whl"):
        return _wheel(Path(spec), folder, top)
    raise InputError("--install names nothing that CI can install", remedy=_FORMS)


def _wheel(wheel: Path, folder: Path, top: Path) -> str:
    if not wheel.is_file():
        raise InputError("there is no such wheel", file=str(wheel), remedy=_FORMS)
    if not wheel.resolve().is_relative_to(top.resolve()):
        raise InputError(
            "is outside the repository, where CI does not have it",
            file=str(wheel),
            remedy="copy it into the repository, and name the copy",
        )
    relative = Path(os.path.relpath(wheel.resolve(), folder.resolve())).as_posix()
    return relative if relative.startswith("../") else f"./{relative}"


def requirement_of_this(version: str) -> tuple[str, str | None]:
    """Return what installs the package that runs here, and what a person must know where that is uncertain.

    An installer notes where a package is from if that is no index. A commit of a Git repository is named as it is; from
    anywhere else the version is named, which CI finds only once that is on an index.
    """
    wanted = f"{NAME}=={version}"
    try:
        text = importlib.metadata.distribution(NAME).read_text("direct_url.json")
        origin: Any = None if text is None else json.loads(text)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        origin = {}
    if origin is None:
        return wanted, None
    source = origin if isinstance(origin, dict) else {}
    commit = source.get("vcs_info", {}).get("commit_id")
    url = str(source.get("url", ""))
    if commit and _URL.fullmatch(url) and url.startswith("https://") and "@" not in url:
        return f"git+{url}@{commit}", None
    return wanted, (
        f"CI installs {wanted}, but this copy came from no index: unless that version is on one, give --install SPEC "
        "(a version, a wheel or a Git URL)"
    )
