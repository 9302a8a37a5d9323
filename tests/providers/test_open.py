"""Opening a model: what is wrong is said in one line before anything starts, and no key is ever shown."""

from __future__ import annotations

import importlib
import importlib.metadata
import pickle
import socket
import subprocess
import sys
from typing import Any

import pytest

from tachograph.fail.errors import InputError
from tachograph.runtime.agent import Agent
from tachograph.runtime.models.providers import PROVIDERS, open_model
from tachograph.runtime.policy.policy import Policy
from tests.providers.asking import PACKAGES
from tests.support import ROOT, environment

OPENAI_KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123"
ANTHROPIC_KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"
KEYS = {"openai": ("OPENAI_API_KEY", OPENAI_KEY), "anthropic": ("ANTHROPIC_API_KEY", ANTHROPIC_KEY)}


@pytest.fixture(autouse=True)
def sdks_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening looks whether the SDK is there, and does no more with it."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99.0")


def refused(spec: str, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        open_model(spec, **options)
    text = str(caught.value)
    assert "\n" not in text and ";" in text, "one line with a remedy"
    assert OPENAI_KEY not in text and ANTHROPIC_KEY not in text
    return text


# ---- the name ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["", "gpt-5", ":m", OPENAI_KEY, ANTHROPIC_KEY, "a b:m"])
def test_a_model_needs_a_provider(spec: str) -> None:
    assert refused(spec) == (
        "a model is named by its provider and its name; write PROVIDER:MODEL, the provider one of "
        "anthropic, openai, ollama"
    )


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("antropic:m", "'anthropic'"),
        ("OpenAI:m", "'openai'"),
        ("olama:m", "'ollama'"),
        ("gemini:m", "one of"),
    ],
)
def test_an_unknown_provider(spec: str, wanted: str) -> None:
    assert wanted in refused(spec)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("model", ["", " m", "m\n", "m m", "é", "m" * 201, "$(m)"])
def test_a_provider_needs_a_model(provider: str, model: str) -> None:
    assert refused(f"{provider}:{model}").startswith(f"{provider}: needs the name of a model")


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"total_s": -1},
        {"total_s": 1e9},
        {"max_output_tokens": 0},
    ],
)
def test_limits_are_limits(options: dict[str, Any]) -> None:
    assert "out of range" in refused("ollama:m", **options)


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream", "max_tokens", "n"])
def test_what_a_request_is_made_of_cannot_be_overwritten(name: str) -> None:
    assert f"extra holds '{name}'" in refused("ollama:m", extra={"seed": 1, name: 1})
    assert "extra is not JSON" in refused("ollama:m", extra={"seed": object()})


def test_a_name_may_have_colons_and_slashes() -> None:
    adapter = open_model("ollama:hf.co/unsloth/Qwen3:Q4_K_M")
    assert adapter.identity == {
        "execution_path": "live",
        "provider": "ollama",
        "name": "hf.co/unsloth/Qwen3:Q4_K_M",
        "script_digest": None,
    }


def test_options_are_part_of_what_a_record_says_of_a_request() -> None:
    given = {"temperature": 0.5, "stop": ["a"]}
    adapter = open_model("ollama:m", extra=given)
    given["stop"].append("b")  # type: ignore[attr-defined]
    assert adapter.identity["options"] == {"temperature": 0.5, "stop": ["a"]}
    agent = Agent(adapter, [], Policy.shipped())
    line = agent.run_line(agent.configure_run("What now?"))
    assert line["request_parts"]["options"][0]["options"] == adapter.identity["options"]
    assert "options" not in line["model"]


# ---- package, key, address -----------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_missing_package(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    wanted = f"the package '{PACKAGES[provider]}' is not installed; run: pip install 'tachograph[live]'"
    assert refused(f"{provider}:m") == wanted


@pytest.mark.parametrize(
    ("found", "enough"),
    [("2.99.1", False), ("3.0", True), ("3.10.0", True), ("4", True), ("3.1rc1", True)],
)
def test_a_package_that_is_too_old(found: str, enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    if enough:
        assert open_model("ollama:m")
    else:
        assert refused("ollama:m").startswith(
            "the package 'openai' is version 2.99.1, and 3.0 or later is needed; run: pip"
        )


def test_the_requirements_say_the_same() -> None:
    lines = (ROOT / "requirements-live.txt").read_text(encoding="utf-8").splitlines()
    said = dict(line.split(">=") for line in lines if ">=" in line)
    modules = {name: importlib.import_module(f"tachograph.runtime.models.providers.{name}") for name in said}
    assert said == {name: module.NEEDED for name, module in modules.items()}


@pytest.mark.parametrize("provider", KEYS)
def test_a_missing_key(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, value = KEYS[provider]
    assert refused(f"{provider}:m").startswith(f"{name} is not set; set it, or name a server")
    home = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}[provider]
    assert "is not set" in refused(f"{provider}:m", base_url=home)
    monkeypatch.setenv(name, "")
    assert "is not set" in refused(f"{provider}:m")
    monkeypatch.setenv(name, value + "\n")
    assert (
        refused(f"{provider}:m") == f"{name} holds a character that no key has; set it again, without spaces"
    )


@pytest.mark.parametrize("provider", KEYS)
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080", "http://localhost:1/v1", "https://llm.example.com/v1"]
)
def test_an_address_of_one_s_own_needs_no_key(
    provider: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_model(f"{provider}:m", base_url=url).secrets == ()
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", url)
    adapter = open_model(f"{provider}:m")
    assert adapter.host == url.split("/")[2] and adapter.secrets == ()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/", "not an address"),
        ("//host", "not an address"),
        ("http://", "not an address"),
        ("http://host:99999/", "not an address"),
        ("http://ho st/", "not an address"),
        ("http://[::1/", "not an address"),
        ("https://user:hunter2-hunter2@host/v1", "more than an address"),
        ("https://hunter2@host/v1", "more than an address"),
        ("https://host/v1?key=hunter2-hunter2", "more than an address"),
        ("https://host/v1#x", "more than an address"),
    ],
)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_addresses_are_read_strictly(provider: str, url: str, said: str) -> None:
    text = refused(f"{provider}:m", base_url=url)
    assert said in text and "hunter2" not in text


@pytest.mark.parametrize(
    ("variable", "host"),
    [
        (None, "127.0.0.1:11434"),
        ("box", "box:11434"),
        ("box:8080", "box:8080"),
        ("[::1]", "[::1]:11434"),
        ("http://box", "box"),
        ("https://ollama.example.com", "ollama.example.com"),
        ("http://box:8080/v1/", "box:8080"),
    ],
)
def test_where_ollama_is(variable: str | None, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if variable is not None:
        monkeypatch.setenv("OLLAMA_HOST", variable)
    assert open_model("ollama:m").host == host


def test_azure_is_used_where_openai_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://res.openai.azure.com/")
    assert refused("openai:deployment").startswith("AZURE_OPENAI_API_KEY is not set")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "0123456789abcdef0123456789abcdef")
    adapter = open_model("openai:deployment")
    assert adapter.host == "res.openai.azure.com"
    assert adapter.secrets == (("api_key", "0123456789abcdef0123456789abcdef"),)
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI_KEY)
    assert open_model("openai:m").host == "api.openai.com"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert open_model("openai:m").host == "127.0.0.1:9"
    assert open_model("openai:m", base_url="http://127.0.0.1:8").host == "127.0.0.1:8"


# ---- keys ------------------------------------------------------------------------------------------------------


def test_keys_are_held_by_kind_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI_KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", ANTHROPIC_KEY)
    monkeypatch.setenv("OLLAMA_API_KEY", "0123456789abcdef.xyz")
    held = {provider: open_model(f"{provider}:m") for provider in PROVIDERS}
    assert held["openai"].secrets == (("openai_key", OPENAI_KEY),)
    assert held["anthropic"].secrets == (("anthropic_key", ANTHROPIC_KEY),)
    assert held["ollama"].secrets == (("api_key", "0123456789abcdef.xyz"),)
    assert (held["openai"].host, held["anthropic"].host) == ("api.openai.com", "api.anthropic.com")
    for adapter in held.values():
        for _, value in adapter.secrets:
            assert value not in repr(adapter) + str(adapter) + repr(adapter.identity)
        with pytest.raises(TypeError, match="holds a key"):
            pickle.dumps(adapter)


def test_a_bearer_token_and_headers_of_one_s_own_are_secrets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "gateway-token-1")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Gateway-Key: gw-secret-2\nX-Team: blue-team-1\nbroken")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer other-secret-3")
    assert open_model("anthropic:m").secrets == (("api_key", "gateway-token-1"), ("api_key", "gw-secret-2"))
    assert open_model("openai:m", base_url="http://127.0.0.1:1").secrets == (("api_key", "other-secret-3"),)


def test_a_word_that_only_fills_the_place_of_a_key_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    assert open_model("openai:m", base_url="http://127.0.0.1:1").secrets == ()


# ---- nothing happens yet -----------------------------------------------------------------------------------------


def test_opening_contacts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("opening a model used the network")

    monkeypatch.setattr(socket.socket, "connect", never)
    monkeypatch.setattr(socket, "getaddrinfo", never)
    for name, value in KEYS.values():
        monkeypatch.setenv(name, value)
    for provider in PROVIDERS:
        assert open_model(f"{provider}:m").host


def test_opening_imports_no_sdk() -> None:
    program = (
        "import sys; from tachograph.runtime.models.providers import open_model\n"
        "for p in ('openai', 'anthropic', 'ollama'):\n"
        "    try: open_model(p + ':m', base_url='http://127.0.0.1:1')\n"
        "    except Exception as error: print(error)\n"
        "print(sorted({'openai', 'anthropic', 'httpx', 'httpx2', 'pydantic'} & set(sys.modules)))"
    )
    for provider in PROVIDERS:
        pytest.importorskip(PACKAGES[provider])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr
