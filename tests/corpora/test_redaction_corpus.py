"""Redaction as shipped: harmless texts pass unchanged, and every recognisable kind of secret is replaced."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid

import pytest

from tachograph.runtime.core.secret_kinds import KEY_KINDS
from tachograph.runtime.policy.policy import Policy
from tests.support import ROOT

COUNT = 10_000
A, D = "Ab1Cd2" * 20, "0123456789abcdef" * 8  # what secrets are made of here, so that no line looks like one


def _harmless(i: int) -> str:
    """Return one of the texts that keys are mistaken for; the same in every run."""
    data = hashlib.sha512(str(i).encode()).digest()
    digest = data.hex()
    plain, url = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
    forms = (
        digest[:40],
        digest[:64],
        f"sha256:{digest[:64]}",
        str(uuid.UUID(bytes=data[:16])),
        plain,
        url,
        f"data:image/png;base64,{plain * 4}",
        json.dumps(
            {
                "name": f"pkg{i}",
                "integrity": f"sha512-{plain}",
                "resolved": f"https://registry.test/p-{i}.tgz",
            }
        ),
        f'source = "registry+https://github.com/rust-lang/crates.io-index"\nchecksum = "{digest[:64]}"',
        f"pkg-{i}==1.{i % 9}.0 --hash=sha256:{digest[:64]}",
        f'{{ url = "https://files.test/{digest[:2]}/{digest[2:62]}/p.whl", hash = "sha256:{digest[:64]}" }}',
        f"git+ssh://git@host.test/team/repo.git#{digest[:40]}",
        f"h1:{plain[:43]}= v0.{i}.0/go.mod",
        f"commit {digest[:40]}\nindex {digest[:7]}..{digest[7:14]} 100644",
        f"https://host.test:8443/path@{i}?token_type=bearer&next=/basic",
        f"bearer of news number {i}, and basic responsibilities; the secret is a word, passwords too",
        f"ssh-ed25519 {plain[:68]} someone",
        f"-----BEGIN CERTIFICATE-----\n{plain[:64]}\n-----END CERTIFICATE-----",
        f"task-{i} ask-{url[:12]} hf_model npm_config_cache pypi-simple r8_ dapi gsk_ SG.1 xoxo",
        f'"etag": "W/\\"{digest[:32]}\\"", "time": 17{i:011d}, "pi": 3.14159',
    )
    return forms[i % len(forms)]


@pytest.mark.parametrize("place", ["policy/v1.yaml", "src/scaffold/template/policy/v1.yaml"])
def test_all_kinds_but_mail_addresses_are_on_by_default(place: str) -> None:
    assert Policy.load(ROOT / place, root=ROOT).redact == KEY_KINDS


def test_harmless_texts_pass_unchanged() -> None:
    redact = Policy.shipped().redactor()
    changed = [text for text in map(_harmless, range(COUNT)) if redact(text) != text]
    assert changed == []


SECRETS = {
    "Anthropic": "sk-" + f"ant-api03-{A[:90]}AA",
    "AWS access key": "AKIA" + "ABCDEFGHIJKLMNOP",
    "AWS session key": "ASIA" + "ABCDEFGHIJKLMNOP",
    "AWS secret": f"aws_secret_access_key = {A[:40]}",
    "AWS secret as JSON": f'"AwsSecretAccessKey": "{A[:40]}"',
    "bearer header": f"Authorization: Bearer {A[:40]}",
    "basic header": f"Authorization: Basic {A[:40]}==",
    **{f"GitHub {p}": f"gh{p}_{A[:36]}" for p in "pousr"},
    "GitHub fine-grained": f"github_pat_{A[:82]}",
    **{
        f"GitLab {p}": f"gl{p}-{A[:20]}"
        for p in ("pat", "dt", "rt", "ptt", "soat", "cbt", "ft", "imt", "agent")
    },
    "Google": "AIza" + A[:35],
    "Hugging Face": "hf" + "_" + A[:34],
    "JSON Web Token": f"eyJ{A[:20]}.eyJ{A[:40]}.{A[:43]}",
    "npm": "npm" + "_" + A[:36],
    "OpenAI": "sk-" + A[:48],
    "OpenAI project": "sk-" + f"proj-{A[:80]}",
    **{
        f"private key {p}": f"-----BEGIN {p}PRIVATE KEY-----\n{A}\n-----END {p}PRIVATE KEY-----"
        for p in ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ")
    },
    "PGP key": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{A}\n-----END PGP PRIVATE KEY BLOCK-----",
    "PyPI": "pypi-" + f"AgEIcHlwaS5vcmc{A[:60]}",
    "SendGrid": f"SG.{A[:22]}.{A[:43]}",
    **{f"DigitalOcean {p}": f"do{p}_v1_{D[:64]}" for p in "opr"},
    **{f"Shopify {p}": f"shp{p}_{D[:32]}" for p in ("at", "ca", "pa", "ss")},
    **{f"Vault {p}": f"hv{p}.{A[:24]}" for p in "sbr"},
    "Grafana service": f"glsa_{A[:40]}",
    "Grafana cloud": f"glc_{A[:40]}",
    "Databricks": f"dapi{D[:32]}",
    "Linear": f"lin_api_{A[:40]}",
    "Postman": f"PMAK-{D[:24]}-{D[:34]}",
    **{f"Square {p}": f"sq0{p}-{A[:22]}" for p in ("atp", "csp")},
    **{f"Doppler {p}": f"dp.{p}.{A[:40]}" for p in ("pt", "st", "ct")},
    "Groq": f"gsk_{A[:52]}",
    "xAI": f"xai-{A[:80]}",
    "Perplexity": f"pplx-{A[:48]}",
    "Replicate": f"r8_{A[:37]}",
    "Notion": f"ntn_{A[:46]}",
    "Figma": f"figd_{A[:40]}",
    "New Relic": f"NRAK-{A[:27].upper()}",
    "age": f"AGE-SECRET-KEY-1{A[:58].upper()}",
    "Sentry": f"sntrys_{A[:60]}",
    "Pulumi": f"pul-{D[:40]}",
    "Telegram": f"123456789:AA{A[:33]}",
    **{f"Slack {p}": f"xox{p}-123456789012-{A[:24]}" for p in "abeoprs"},
    "Slack app": f"xapp-1-{A[:40]}",
    **{f"Stripe {k} {m}": f"{k}_{m}_{A[:24]}" for k in ("sk", "rk") for m in ("live", "test")},
    "Stripe webhook": f"whsec_{A[:32]}",
    "password in a URL": f"postgres://app:{A[:20]}@db.test/x",
    "password of a proxy": f"http://user:{A[:9]}@proxy.test:3128",
    **{
        f"Slack {p}": f"https://hooks.slack.com/{p}/T1/B2/{A[:24]}"
        for p in ("services", "workflows", "triggers")
    },
    **{f"{p} webhook": f"https://{p}.com/api/webhooks/123456/{A[:68]}" for p in ("discord", "discordapp")},
}


@pytest.mark.parametrize("name", SECRETS)
def test_every_recognisable_kind_is_replaced(name: str) -> None:
    redact = Policy.shipped().redactor()
    for text in (SECRETS[name], f'{{"value":"{SECRETS[name]}"}}', f"see {SECRETS[name]}, please"):
        out = redact(text)
        assert "<secret:" in out and A[:6] not in out and A[:9].upper() not in out and D[:16] not in out
