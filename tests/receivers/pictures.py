"""Pictures of what the viewers show: `python tests/receivers/run.py --pictures DIR`, with Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.receivers.viewers import Mlflow, Phoenix, Viewer, get
from tests.support import ROOT, environment

RUNS = ("runs/canonical/v1", "runs/policy_gates/pg1_off_allowlist_url")


def push(viewer: Any) -> list[str]:
    """The trace ids of the runs, sent with what was said and moved to now: viewers show the last days first."""
    command = [sys.executable, "-m", "tachograph", "push", *RUNS, "--now", "--content", "--json"]
    command += ["--endpoint", viewer.endpoints["http/protobuf"], *viewer.headers]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, check=True, timeout=60)
    return [item["trace_id"] for item in json.loads(done.stdout)["sent"]]


def scripts() -> Path:
    """Where the commands of the viewers' environment are."""
    return Path(os.environ["TACHOGRAPH_RECEIVERS"]).resolve() / "bin"


# the left part of a picture, in few colours: Pillow comes with the viewers
SHRINK = """
import sys
from PIL import Image
name, width = sys.argv[1], int(sys.argv[2])
with Image.open(name) as whole:
    small = whole.convert("RGB").crop((0, 0, width, whole.height)).quantize(256)
small.save(name, optimize=True)
"""


def picture(url: str, file: Path, size: tuple[int, int], width: int | None = None) -> None:
    """One picture of a page, once its scripts have settled; `width` is what of it is kept."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("receivers: no pictures, there is no chromium")
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--force-prefers-reduced-motion", "--run-all-compositor-stages-before-draw"]
        command += [f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        command += ["--virtual-time-budget=40000", f"--screenshot={file}", url]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    shrink = [str(scripts() / "python"), "-c", SHRINK, str(file), str(width or size[0])]
    subprocess.run(shrink, check=True, timeout=60)
    print(f"{file.name}: {file.stat().st_size} bytes")


def of_phoenix(viewer: Phoenix, to: Path) -> None:
    """The answer of a run, and the check that denied another."""
    canonical, denied = push(viewer)
    viewer.spans(canonical, 23), viewer.spans(denied, 4)
    project = get(f"{viewer.url}/v1/projects/default")["data"]["id"]
    picture(f"{viewer.url}/projects/{project}/traces/{canonical}", to / "phoenix.png", (1400, 800))
    (check,) = [
        span["id"]
        for span in viewer.all_spans()
        if span["context"]["trace_id"] == denied and span["span_kind"] == "GUARDRAIL"
    ]
    page = f"{viewer.url}/projects/{project}/traces/{denied}?selectedSpanNodeId={check}"
    picture(page, to / "phoenix-denial.png", (1400, 700))


def of_mlflow(viewer: Mlflow, to: Path) -> None:
    """The answer of a run."""
    canonical, _ = push(viewer)
    page = f"{viewer.url}/#/experiments/0/traces?selectedEvaluationId=tr-{canonical}"
    picture(page, to / "mlflow.png", (1400, 700), width=979)  # the rest is dimmed


def main(to: Path) -> None:
    """Start each viewer, send, look."""
    to = to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    for kind, look in ((Phoenix, of_phoenix), (Mlflow, of_mlflow)):
        with tempfile.TemporaryDirectory() as folder:
            viewer: Viewer = kind(scripts(), Path(folder))
            with viewer:
                look(viewer, to)  # type: ignore[operator]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
