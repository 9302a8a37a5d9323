"""Secrets of many vendors are found wherever they stand, and ordinary strings stay as they are.

The shapes are written here apart from the rules: prefix, alphabet, length. Values are drawn, so that no file holds one.
"""

from __future__ import annotations

import base64
import hashlib
import random
import re
import string
import uuid
from collections.abc import Callable

import pytest

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.core.secret_kinds import KEY_KINDS, PATTERNS, secret_rules

ALNUM = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
URL64 = ALNUM + "_-"
BASE64 = ALNUM + "+/"
DIGITS = string.digits
ALPHABETS = {"A": ALNUM, "l": LOWER, "U": UPPER, "h": HEX, "u": URL64, "b": BASE64, "d": DIGITS}

# vendor's secret -> parts: a text with `·` for a space, or `alphabet:length`
SHAPES = {
    "aws access key": "AKIA U:16",
    "aws temporary key": "ASIA U:16",
    "aws bedrock": "ABSK b:108 ==",
    "google api": "AIza u:35",
    "google oauth secret": "GOCSPX- u:28",
    "google access": "ya29. u:120",
    "google refresh": "1//0 u:60",
    "gemini": "AQ. u:50",
    "azure storage": "DefaultEndpointsProtocol=https;AccountName=x;AccountKey= b:86 ==",
    "azure service bus": "Endpoint=sb://x.example/;SharedAccessKeyName=n;SharedAccessKey= b:43 =",
    "azure sas": "https://x.blob.example/c?sv=2024-01-01&sig= A:43 %3D",
    "entra": "A:3 8Q~ u:34",
    "cloudflare": "v1.0- h:24 - h:146",
    "alibaba": "LTAI A:20",
    "tencent": "AKID A:32",
    "digitalocean": "dop_v1_ h:64",
    "heroku": "HRKU- u:58",
    "fly": "fo1_ u:43",
    "fly macaroon": "fm2_ b:120",
    "vercel": "vcp_ A:56",
    "netlify": "nfp_ A:36",
    "render": "rnd_ A:28",
    "supabase": "sbp_ h:40",
    "supabase secret": "sb_secret_ u:31",
    "planetscale": "pscale_tkn_ u:43",
    "neon": "napi_ l:64",
    "scaleway": "SCW U:17",
    "terraform": "A:14 .atlasv1. u:67",
    "vault": "hvs. u:90",
    "doppler": "dp.st. A:43",
    "doppler service account": "dp.sa. A:43",
    "databricks": "dapi h:32",
    "aiven": "AVNS_ u:19",
    "confluent": "cflt b:60",
    "1password": "ops_eyJ b:200",
    "bitwarden": "0. uuid . A:30 : b:22 ==",
    "tailscale": "tskey-auth- A:12 - A:32",
    "pulumi": "pul- h:40",
    "github": "ghp_ A:36",
    "github fine": "github_pat_ A:22 _ A:59",
    "github app": "ghs_ A:36",
    "gitlab": "glpat- u:20",
    "gitlab routable": "glpat- u:27 . h:2 . l:9",
    "gitlab oauth": "gloas- h:64",
    "gitlab runner": "GR1348941 u:20",
    "bitbucket": "ATBB A:32",
    "atlassian": "ATATT3 u:186",
    "sourcegraph": "sgp_ h:16 _ h:40",
    "circleci": "CCIPAT_ A:22 _ h:40",
    "buildkite": "bkua_ h:40",
    "harness": "pat. u:22 . h:24 . A:20",
    "octopus": "API- U:27",
    "sonarqube": "squ_ h:40",
    "artifactory": "AKCp A:69",
    "postman": "PMAK- h:24 - h:34",
    "npm": "npm_ A:36",
    "pypi": "pypi-AgEIcHlwaS5vcmc u:120",
    "rubygems": "rubygems_ h:48",
    "crates": "cio A:32",
    "docker": "dckr_pat_ u:27",
    "nuget": "oy2 l:43",
    "clojars": "CLOJARS_ l:60",
    "stripe": "sk_live_ A:24",
    "stripe restricted": "rk_live_ A:99",
    "stripe webhook": "whsec_ A:32",
    "square": "EAAA u:60",
    "braintree": "access_token$production$ l:16 $ h:32",
    "adyen": "AQEqhm b:70",
    "plaid": "access-sandbox- uuid",
    "razorpay": "rzp_live_ A:14",
    "flutterwave": "FLWSECK- h:32 -X",
    "paddle": "pdl_live_apikey_ l:26 _ A:22 _ A:3",
    "shopify": "shpat_ h:32",
    "easypost": "EZAK A:54",
    "shippo": "shippo_live_ h:40",
    "duffel": "duffel_live_ u:43",
    "slack bot": "xoxb- d:12 - d:12 - A:24",
    "slack app": "xapp-1-A01- d:12 - h:64",
    "slack cookie": "xoxd- A:80",
    "slack refresh": "xoxe-1- A:140",
    "telegram": "d:10 :AA u:33",
    "twilio": "SK h:32",
    "sendgrid": "SG. u:22 . u:43",
    "mailgun": "key- h:32",
    "mailgun new": "h:32 - h:8 - h:8",
    "mailchimp": "h:32 -us12",
    "brevo": "xkeysib- h:64 - A:16",
    "resend": "re_ A:8 _ A:24",
    "hubspot": "pat-na1- uuid",
    "salesforce": "00D A:15 ! A:96",
    "dropbox": "sl.u. u:140",
    "airtable": "pat A:14 . h:64",
    "asana": "2/ d:16 / d:16 : h:32",
    "clickup": "pk_ d:8 _ U:32",
    "trello": "ATTA h:64 U:8",
    "linear": "lin_api_ A:40",
    "notion": "ntn_ A:46",
    "figma": "figd_ u:43",
    "typeform": "tfp_ u:59",
    "contentful": "CFPAT- u:43",
    "prefect": "pnu_ A:36",
    "dbt": "dbtu_ u:40",
    "readme": "rdme_ l:70",
    "new relic": "NRAK- U:27",
    "new relic licence": "h:36 FFFFNRAL",
    "sentry": "sntrys_ b:80",
    "sentry user": "sntryu_ h:64",
    "sentry dsn": "https:// h:32 @o1.ingest.example/42",
    "grafana": "glsa_ A:32 _ h:8",
    "grafana cloud": "glc_ b:60",
    "honeycomb": "hcaik_ l:58",
    "elastic": "essu_ b:60",
    "dynatrace": "dt0c01. U:24 . U:64",
    "axiom": "xaat- uuid",
    "posthog": "phx_ A:43",
    "launchdarkly": "sdk- uuid",
    "openai": "sk-proj- u:100",
    "anthropic": "sk-ant-api03- u:93 AA",
    "huggingface": "hf_ A:34",
    "groq": "gsk_ A:52",
    "xai": "xai- A:80",
    "perplexity": "pplx- A:48",
    "replicate": "r8_ A:37",
    "openrouter": "sk-or-v1- h:64",
    "together": "tgp_v1_ u:43",
    "fireworks": "fw_ A:24",
    "cerebras": "csk- l:48",
    "nvidia": "nvapi- u:64",
    "voyage": "pa- u:43",
    "jina": "jina_ A:60",
    "pinecone": "pcsk_ A:60",
    "langsmith": "lsv2_pt_ h:32 _ h:10",
    "elevenlabs": "sk_ h:48",
    "tavily": "tvly- A:32",
    "firecrawl": "fc- h:32",
    "apify": "apify_api_ A:36",
    "e2b": "e2b_ h:40",
    "runpod": "rpa_ U:46",
    "age": "AGE-SECRET-KEY-1 U:58",
    "slack hook": "https://hooks.slack.com/services/T U:8 /B U:8 / A:24",
    "discord hook": "https://discord.com/api/webhooks/ d:18 / u:68",
    "teams hook": "https://x.webhook.office.com/webhookb2/ uuid @ uuid /IncomingWebhook/ h:32 / uuid",
    "zapier hook": "https://hooks.zapier.com/hooks/catch/ d:7 / l:12 /",
    "lark hook": "https://open.larksuite.com/open-apis/bot/v2/hook/ uuid",
    "postgres": "postgres://user: A:16 @db.example:5432/x",
    "mongodb": "mongodb+srv://user: A:16 @db.example/x",
    "redis": "redis://: A:20 @cache.example:6379",
    "ado.net": "Server=db;User=sa;Password= A:14 ;Encrypt=true",
    "netrc": "machine·h.example·login·me·password· A:14",
    "npmrc": "//registry.example/:_authToken= uuid",
    "env token": "CLOUDFLARE_API_TOKEN= u:40",
    "env key": "DD_API_KEY= h:32",
    "yaml password": "password:· A:12 !9",
    "json api key": '"api_key":·" A:32 "',
    "header key": "X-Api-Key:· A:32",
    "aws secret": "aws_secret_access_key·=· b:40",
    "bearer": "Authorization:·Bearer· u:40 9",
    "client secret": "client_secret= u:40",
}


def value_of(shape: str, draw: random.Random) -> tuple[str, list[str]]:
    """A value of a shape, and what is drawn in it: that is what may not be left."""
    out, drawn = "", []
    for part in shape.split(" "):
        alphabet, _, length = part.partition(":")
        if part == "uuid":
            drawn.append(str(uuid.UUID(int=draw.getrandbits(128), version=4)))
            out += drawn[-1]
        elif alphabet in ALPHABETS and length.isdigit():
            text = "".join(draw.choice(ALPHABETS[alphabet]) for _ in range(int(length)))
            if int(length) > 8:  # as drawn values of this length have
                text = text[:3] + "7" + text[4:5].replace("-", "x").replace("_", "x") + text[5:]
                text = text[:-1] + "k" if alphabet in "Alub" else text
                drawn.append(text)
            out += text
        else:
            out += part.replace("·", " ")
    return out, drawn


PLACES: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "prose": lambda text: f"Please use {text} for now.",
    "json": lambda text: '{"note": "' + text.replace('"', '\\"') + '"}',
    "code": lambda text: f"value = '{text}'\n",
    "markdown": lambda text: f"run `{text}` once\nand go on",
    "a list": lambda text: f"- {text}\n- other",
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_secret_is_found_wherever_it_stands(name: str) -> None:
    draw = random.Random(name)
    for place, put in PLACES.items():
        for _ in range(5):
            text, drawn = value_of(SHAPES[name], draw)
            left = Redactor(list(KEY_KINDS))(put(text))
            secret = max(drawn, key=len)
            assert secret not in left and "<secret:" in left, (place, put(text), left)
            assert not any(secret[at : at + 12] in left for at in range(len(secret) - 11)), (put(text), left)


def test_private_keys_of_every_form_are_taken_whole() -> None:
    body = "\n".join(base64.b64encode(random.Random(n).randbytes(48)).decode() for n in range(8))
    for name in ("RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA ", ""):
        pem = f"-----BEGIN {name}PRIVATE KEY-----\n{body}\n-----END {name}PRIVATE KEY-----"
        for text in (pem, pem.replace("\n", "\\n"), pem.replace("\n", "\r\n")):
            assert Redactor(list(KEY_KINDS))(f"a {text} z") == "a <secret:private_key:1> z"
    putty = f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 8\n{body}\nPrivate-MAC: {'ab' * 32}"
    assert Redactor(list(KEY_KINDS))(f"{putty}\nz") == "<secret:private_key:1>\nz"
    ssh2 = f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{body}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----"
    assert Redactor(list(KEY_KINDS))(ssh2) == "<secret:private_key:1>"


def ordinary() -> list[str]:
    """Strings of public formats that are no secrets, drawn anew from a fixed seed."""
    draw = random.Random("ordinary")
    out = []
    for number in range(12):
        data = draw.randbytes(64)
        digests = [
            hashlib.new(name, data).hexdigest() for name in ("md5", "sha1", "sha256", "sha384", "sha512")
        ]
        based = base64.b64encode(hashlib.sha512(data).digest()).decode()
        name = "".join(draw.choice(LOWER) for _ in range(8))
        out += [
            *digests,
            f"sha256:{digests[2]}",
            f"{name}@sha256:{digests[2]}",
            f'"integrity": "sha512-{based}"',
            f"integrity sha512-{based}",
            f"{name}==1.{number}.2 --hash=sha256:{digests[2]}",
            f"github.com/x/{name} v1.{number}.0 h1:{base64.b64encode(hashlib.sha256(data).digest()).decode()}",
            f'checksum = "{digests[2]}"',
            f"index {digests[1][:8]}..{digests[2][:8]} 100644",
            f"commit {digests[1]}",
            str(uuid.UUID(int=draw.getrandbits(128), version=4)),
            f"run_id: {uuid.UUID(int=draw.getrandbits(128), version=4)}",
            f"@scope/{name}@1.{number}.3",
            f"{name}@^{number}.0.0",
            f"pkg:npm/%40scope/{name}@1.2.{number}",
            f"{name} @ git+https://github.com/x/{name}.git@v{number}",
            f"git@github.com:x/{name}.git",
            f"https://example.org/{name}/{digests[1]}?page={number}",
            f"data:image/png;base64,{base64.b64encode(draw.randbytes(300)).decode()}",
            base64.b64encode(draw.randbytes(600)).decode(),
            "".join(draw.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(26)),
            f"max_tokens: {number}000",
            f"token_count={number}23",
            f"the password: required, at least {number} characters",
            "api_key: ${API_KEY}",
            'api_key = os.environ["SERVICE_API_KEY"]',
            "password = getpass.getpass()",
            f'"primary_key": "{name}_id"',
            f"2026-01-0{number % 9 + 1}T00:00:00.000Z",
            f"192.168.{number}.1:8080",
            f"arn:aws:s3:::bucket-{name}/key",
            f"refs/heads/feature/{name}-{number}",
            f"icon-{name}@2x.png",
        ]
    return out


@pytest.mark.parametrize("place", PLACES)
def test_ordinary_strings_stay_as_they_are(place: str) -> None:
    texts = ordinary()
    assert len(texts) >= 300
    changed = [(text, Redactor(list(KEY_KINDS))(PLACES[place](text))) for text in texts]
    assert [(text, left) for text, left in changed if left != PLACES[place](text)] == []


def test_a_secret_beside_a_name_keeps_its_kind() -> None:
    key = "ghp_" + "a1B2" * 9
    redact = Redactor(list(KEY_KINDS))
    assert redact(f"access_token: {key}") == "access_token: <secret:github_token:1>"
    assert redact(f"and {key} again") == "and <secret:github_token:1> again"
    assert redact("access_token: a1B2c3D4e5F6a7B8") == "access_token: <secret:service_token:1>"


def test_rules_are_whole() -> None:
    rules = secret_rules()
    assert len(rules) > 140 and len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.kind in PATTERNS and rule.kind != "email" and rule.needles and "." in rule.source
        assert all(needle == needle.lower() and " " not in needle for needle in rule.needles)
        assert set(re.compile(rule.pattern).groupindex) <= {"value"}
        assert rule.across_words == (rule.name in ACROSS), rule.name


ACROSS = {
    "Azure storage or Cosmos account key",
    "Azure shared access key",
    "Okta API token beside its scheme",
    "PuTTY key",
    "SSH2 key",
    "Token or key beside its name",
    "Value of a variable of the environment",
    "Password beside its name",
    "Password of .netrc",
    "Credentials of a container registry",
    "Session token of AWS beside its name",
}
