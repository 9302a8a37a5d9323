"""Random policies, calls and late facts: the gate and the second judge answer the same, by the same rules."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

from tachograph.runtime.tools.contract import Tool
from tachograph.testing import decide, decide_fact
from tests.second_judge import ORDER, Answer, judge, judge_fact
from tests.tables import rows

SEED = 20
POLICIES = 450
RUNS, CALLS, FACTS = 4, 6, 10  # of each policy, of each run, of each policy
ENOUGH = 100

# ---- a small world, rich in near misses ------------------------------------------------------------------


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    return {**rows.closed(**properties), "required": required.split()}


def resource(kind: str, **limits: Any) -> dict[str, Any]:
    return {"type": "string", "x-resource": kind, **limits}


URL, READ, WRITE = resource("url", maxLength=60), resource("path:read"), resource("path:write", minLength=1)
SMALL = {"type": "integer", "minimum": 0, "maximum": 3, "default": 1}
LINK = closed("href", href=URL, note={"type": "string", "maxLength": 40})
COUNT = closed(
    "n",
    n=SMALL,
    ratio={"type": "number", "exclusiveMaximum": 1},
    flag={"type": "boolean"},
    mode={"enum": ["fast", "slow", 1]},
    tags={"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
    deep=closed("x", x={"type": "integer", "multipleOf": 2}, y={"type": "boolean", "default": True}),
    code={"type": "string", "pattern": "^[a-c]{1,3}$"},
)
SCHEMAS = {
    "get": closed("url", url=URL, depth=SMALL),
    "crawl": closed("links", links={"type": "array", "items": LINK, "maxItems": 2}),
    "look": closed("path", path=READ, size={"type": ["integer", "null"], "maximum": 9}),
    "save": closed("path content", path=WRITE, content={"type": "string", "maxLength": 4}),
    "move": closed("source target", source=READ, target=WRITE, tell={**URL, "default": "https://H.test"}),
    "count": COUNT,
    "nothing": closed(),
    "send": closed(
        "to",
        to={"type": "string"},
        about=resource("text"),
        free=resource("any"),
        page=URL,
        files={"type": "array", "items": {"type": "string"}, "maxItems": 2},
        heads={"type": "object", "additionalProperties": {"type": "string"}},
    ),
}
RESOURCES = ["url", "path:read", "path:write", "text", "text", "any", "any"]
EFFECTS = {"get": "network", "crawl": "network", "save": "write", "move": "network", "look": "read"}
EFFECTS["send"] = "external"
TOOLS = [
    {"name": name, "input_schema": schema, "effect": EFFECTS.get(name, "pure")}
    for name, schema in SCHEMAS.items()
]
# what a policy says of the effect of a server's tool decides no call, so the second judge does not read it
OFFERED = [
    Tool(name, "", schema, closed(), EFFECTS.get(name, "pure"), lambda *_: {}, is_foreign=name == "send")
    for name, schema in SCHEMAS.items()
]
# names that are close to one; the third has a Cyrillic letter
STRANGERS = ["ghost", "Get", "g\u0435t", "get ", "", "get\n", "coun", "look/look"]

ENTRIES = (
    "h.test H.TEST https://h.test https://h.test/ https://h.test/a https://h.test/a/ "
    "https://h.test:443/a/b https://h.test:8443/ http://h.test http://h.test:80/a http://h.test:443/a "
    "k.test HTTPS://K.test/a/b/ https://sub.h.test/ https://10.0.0.7/ https://[fd00::7]/a 10.0.0.7 "
    "https://h.test/a/B"
).split()
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
ORIGINS = (
    "https://h.test https://h.test https://H.Test https://h.test:443 https://h.test:80 "
    "https://h.test:8443 http://h.test http://h.test:80 http://h.test:443 HTTP://h.test https://k.test "
    "https://sub.h.test https://h.test.k.test https://xh.test https://10.0.0.7 https://[fd00::7] "
    "https://[fd00::7]:443"
).split()
PATHS = (
    "/ /a /a /a/ /a/ /a/b /a/b /a/b/ /a/b/c /ab /A /a/B /a?x /a/b?q=/../k /a#f /?a / /a/..b /a/x%20y "
    "/a/%41 /a/%C3%A9 /a;x /a/b;c/d /a//b //a /a/./b /a/../k /a/b/.. /a/... /a/%2e%2e/k /a/%2E/b /a/%2fk "
    "/a/%2Fk /a/%5ck /a/%3bk /a/%252e%252e/k /a/%252fk /a/%25252fk /a/%c0%af /a/%ef%bc%8f "
    "/a/%ef%bc%8e%ef%bc%8e/k /a/%20/b /a/%20 /a/%C2%A0/b /a/%zz /a/% /%61/b /a/%0a /a/%00 /a/%7f /a%2fb "
    "/a/%e2%80%a5/k /a/%ef%bc%9bk /a/.%20 /a/%e2%80%8b/b /a/%c2%ad /a/%25%32%66k /a/k%ef%bc%85 "
    "/a/~b /a/b|c /a/b'c /a/..%e2%81%84k /a/%C2%A5../k /a/..%3fk /a/k%3f.. /a/%25u002e%25u002e/k "
    "/a/..%ef%b8%8f"
).split()
BAD_URLS = (
    "h.test/a|file:///a|https://u@h.test/a|https://h.test\\a|//h.test/a|https://h.test:0/|"
    "https://h.test:99999/| https://h.test/|https://127.1/|https://0x7f.1/|https://h.test:/|https:///a|"
    "https:h.test/a|https://h.test./a|https://h\xe9.test/a|https://h.test/a b|https://h.test:0443/|"
    "https://10.0.0.07/|https://[FD00::7]/|https://h_.test/a|ftp://h.test/a|https://h.test@k.test/|"
    "https://h.test\t/"
).split("|")
MOUNT_PATHS = (
    "book/a.txt|book/a.txt|book/deep/c.txt|box/n|box/n|box/n/m|Box/n|books/a.txt|boo/a.txt|book|book/|"
    "/book/a.txt|book//a|book/../box/n|box/../book/a|box/.|box/..|box/...|box/n/|box\\n|C:/n|~/n|./box/n|"
    "file:box/n|box/e\u0301|box/\xe9|box/a\u200bb|box/n\n|box/%2e%2e/book||shelf/a|https://h.test/a"
).split("|")
ADDRESSES = (
    "8.8.8.8 8.8.8.8 1.1.1.1 2606:4700:4700::1111 10.0.0.1 10.0.0.1 10.255.255.255 11.0.0.0 192.168.1.1 "
    "192.169.0.1 172.15.0.1 172.16.0.1 172.32.0.1 127.0.0.1 0.0.0.0 100.63.0.1 100.64.0.1 "
    "100.100.100.200 169.254.169.254 168.63.129.16 168.63.129.17 192.0.0.192 192.0.2.1 192.88.99.1 "
    "198.18.0.1 198.20.0.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 ::1 :: fd00::1 fc00::1 "
    "fe80::1 fec0::1 ff02::1 2001:db8::1 3fff::1 5f00::1 4000::1 2001:4860:4860::8888 ::ffff:8.8.8.8 "
    "::ffff:10.0.0.1 ::ffff:7f00:1 64:ff9b::808:808 64:ff9b::a00:1 64:ff9b:1::808:808 2002:808:808:: "
    "2002:a00:1:: 2002:a00:1:: 2002:a00:1:: 2001:0:808:808:0:0:f5ff:fffe "
    "2001:0:808:808:0:0:f7f7:f7f7 2001:0:a00:1:0:0:f7f7:f7f7 fe80::1%1 fd00::1%eth0 ::808:808 ::a00:1 "
    "2600::5efe:808:808 2600::200:5efe:a00:1 10.0.0.1. 010.0.0.1 10.1 167772161 h.test 10.0.0.1:443 [fd00::1]"
).split()
NETWORKS = (
    "10.0.0.0/8 10.0.0.0/8 10.0.0.1/32 192.168.0.0/16 127.0.0.0/8 172.16.0.0/12 169.254.0.0/16 "
    "100.64.0.0/10 fd00::/8 fc00::/7 fe80::/10 ::1/128 2002::/16 2001:db8::/32 168.63.129.16/32 "
    "192.0.0.0/24 2002::/16 2002::/16 2001::/32 2001::/32 ::/96"
).split()
FOUND = ["", "", "", "", "link", "hard link", "device", "fifo"]
ODD = [1, 0, 3, 4, -1, 1.0, 1.5, "1", True, None, "", [], {}, [1], {"x": 2}, "x" * 61, 1e300]
ODD += [2**53 - 1, 2**53, 2**53 + 1, -(2**60), -(2**53)]
NO_OBJECTS = [
    "", "null", "[]", "[{}]", '"{}"', "{", "{}x", "{'n': 1}", '{"n":1,"n":1}', '{"n":1,"n":2}', '{"n":NaN}',
    '{"n":1e999}', '{"n":-Infinity}', '{"n":"\\ud800"}', '{"\\udfff":1}', '{"n":01}', '{"n":.5}',
    '{"n":1,}', '{"n":1} // one', "{n:1}", '{"url":"https://k.test/","url":"https://h.test/"}',
    '["https://h.test/"]', '{"path":"box/n"', "\ufeff{}",
]  # fmt: skip


class World:
    """Draws policies, calls and facts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.policy: dict[str, Any] = {}

    def happens(self, share: float) -> bool:
        return self.random.random() < share

    def some(self, of: list[Any], most: int) -> list[Any]:
        return self.random.sample(of, self.random.randint(0, most))

    def new_policy(self) -> None:
        pick, names = self.random.choice, [*SCHEMAS, "ghost"]
        self.random.shuffle(names)
        cut = pick([0, 0, 1, 2, 3])
        urls = [
            {"url": url, "methods": self.random.sample(METHODS, self.random.randint(1, 3))}
            if self.happens(0.3)
            else url
            for url in self.some(ENTRIES, 6)
        ]
        budget = {
            "max_tool_calls": pick([0, 1, 2, 3, 3, 9, 9]),
            "max_result_bytes": pick([0, 1, 2, 3, 90, 9000, 9000]),
        }
        budget |= {"max_attempts": pick([0, 1, 2, 3, 9])} if self.happens(0.4) else {}
        budget |= {"max_wall_clock_s": pick([0, 1, 9])} if self.happens(0.2) else {}
        budget |= {"max_tokens": pick([0, 3, 900]), "overdraft": "deny"} if self.happens(0.4) else {}
        modes = {
            mount: pick(["read", "write", "write"])
            for mount in self.some(["book", "box", "shelf", "books"], 4)
        }
        sections = {
            "tool_registry": {"denied": names[:cut], "allowed": names[cut : cut + pick([0, 3, 8, 8, 8, 8])]},
            "url_allowlist": urls,
            "private_networks": [*{*self.some(NETWORKS, 4)}],
            "sandbox": {"mounts": modes},
            "loop_budget": {key: value for key, value in budget.items() if self.happens(0.97)},
            "cycle_detection": {"max_repeats": pick([0, 1, 2, 2, 3, 3])},
        }
        kept = {key: value for key, value in sections.items() if self.happens(0.97)}
        heads = pick(["/heads/*", "/heads/a", "/heads/x~1y", "/*/a"])
        spoken_of = ["/to", heads] + ["/files/*"] * (heads != "/*/a")  # which meet
        send = {"resources": {place: pick(RESOURCES) for place in spoken_of if self.happens(0.9)}}
        kept["tools"] = {"send": send | pick([{}, {"effect": "read"}, {"effect": "external"}])}
        self.policy = {"schema": "policy/v1", "arg_schema_enforcement": pick(["strict", "shape"]), **kept}

    def url(self) -> str:
        if self.happens(0.08):
            return self.random.choice(BAD_URLS)
        entries = self.policy.get("url_allowlist", [])
        if not entries or self.happens(0.2):
            return self.random.choice(ORIGINS) + self.random.choice(["", *PATHS])
        entry = self.random.choice(entries)
        url = entry if isinstance(entry, str) else entry["url"]
        url = url if "://" in url else f"https://{url}"
        if self.happens(0.6):
            return url + self.random.choice(
                ["", "", "", "/", "/b", "?x", "#f", "b", "/../k", ";x", "%2f", "//"]
            )
        return "/".join(url.split("/")[:3]) + self.random.choice(PATHS)

    def text(self) -> str:
        """Return a text that may be a URL as a whole, or hold one, or be a path, or nothing."""
        shapes = "{url}|{url}| {url}|{url}\n|see {url}|{url} {url}|{path}|{path}|a|".split("|")
        return self.random.choice(shapes).format(url=self.url(), path=self.path())

    def path(self) -> str:
        mounts = [*self.policy.get("sandbox", {}).get("mounts", {})]
        if mounts and self.happens(0.75):
            ends = ["/a", "/a.txt", "/d/e", "/n", "/..a", "/\u00e9", "/..", "/a/../b", "s/a"]
            return self.random.choice(mounts) + self.random.choice(ends)
        return self.random.choice(MOUNT_PATHS)

    def fitting(self, schema: dict[str, Any]) -> Any:
        """Return a value of a schema."""
        pick, kind = self.random.choice, schema.get("type")
        if "x-resource" in schema:
            made = {"url": self.url, "text": self.text, "any": self.text}.get(schema["x-resource"], self.path)
            return made()
        if kind == "object" and "properties" not in schema:
            return {name: self.text() for name in self.some(["a", "x/y", "*"], 2)}
        if kind == "object":
            return {
                name: self.fitting(below)
                for name, below in schema["properties"].items()
                if name in schema["required"] or self.happens(0.3)
            }
        if kind == "array":
            return [self.fitting(schema["items"]) for _ in range(pick([0, 1, 1, 2]))]
        if kind == "string":
            texts = (
                ["a", "abc", "abc\n", "d"]
                if "pattern" in schema
                else ["a", "ab", "\ud800", *[self.text() for _ in range(7)]]
            )
            return pick(texts)
        if kind == "boolean":
            return pick([True, False])
        if kind == "number":
            return pick([0.5, -3, float("-inf"), 1])
        return pick(schema.get("enum", [0, 2] if "multipleOf" in schema else [0, 1, 1.0]))

    def spoilt(self, value: Any) -> Any:
        """Return a value that is likely to fit no more."""
        if isinstance(value, dict) and value and self.happens(0.8):
            name = self.random.choice([*value])
            if self.happens(0.25):
                return {key: item for key, item in value.items() if key != name}
            return (
                {**value, name: self.spoilt(value[name])}
                if self.happens(0.8)
                else {**value, "more": value[name]}
            )
        if isinstance(value, list) and value and self.happens(0.7):
            return [*value, *value] if self.happens(0.4) else [self.spoilt(value[0]), *value[1:]]
        return self.random.choice(ODD)

    def respelt(self, value: Any) -> str:
        """Return a value as another JSON text, with other spellings of what may be a URL."""
        if isinstance(value, dict):
            members = [f"{json.dumps(name)}: {self.respelt(item)}" for name, item in value.items()]
            self.random.shuffle(members)
            return "{ " + " ,".join(members) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.respelt, value)) + "\n]"
        if value == float("-inf"):
            return self.random.choice(["-Infinity", "-1e999"])
        if type(value) is int and abs(value) < 100:
            return self.random.choice([f"{value}", f"{value}.0", f"{value}e0", f"{value}0e-1"])
        if isinstance(value, str) and "//h.test" in value and self.happens(0.7):
            swaps = [("h.test", "H.tESt"), ("https:", "HTTPS:"), ("https://h.test/", "https://h.test:443/")]
            value = value.replace(*self.random.choice(swaps)) + self.random.choice(["", "", "#f"])
        return json.dumps(value, ensure_ascii=self.happens(0.5))

    def calls(self) -> list[dict[str, Any]]:
        registered = self.policy.get("tool_registry", {}).get("allowed", [])
        allowed = [name for name in registered if name in SCHEMAS]
        allowed += ["send", "send"] if "send" in allowed else []
        calls: list[dict[str, Any]] = []
        base: tuple[str, Any] = ("nothing", {})
        for _ in range(CALLS):
            if not calls or self.happens(0.6):
                is_allowed = allowed and self.happens(0.85)
                name = self.random.choice(allowed if is_allowed else [*SCHEMAS, *STRANGERS])
                value = self.fitting(SCHEMAS.get(name, LINK))
                base = (name, self.spoilt(value) if self.happens(0.2) else value)
            name, value = base
            text: Any = self.respelt(value) if self.happens(0.6) or not isinstance(value, dict) else value
            arguments = self.random.choice(NO_OBJECTS) if self.happens(0.03) else text
            calls.append({"name": name, "arguments": arguments})
        return calls

    def fact(self) -> dict[str, Any]:
        if self.happens(0.3):
            access = self.random.choice(["read", "write", "read", "write", "list", "", "READ"])
            path, found = self.path(), self.random.choice(FOUND)
            return {"rule": "sandbox_path", "path": path, "access": access, "found": found}
        fact = {"rule": "url_allowlist", "target": self.url(), "hop": self.random.randint(0, 6)}
        if self.happens(0.5):
            fact["method"] = self.random.choice([*METHODS, "GET", "GET", "get", "TRACE", ""])
        if self.happens(0.7):
            fact["address"] = self.random.choice(ADDRESSES)
        return fact if self.happens(0.98) else {**fact, "rule": "arg_schema"}


# ---- the comparison --------------------------------------------------------------------------------------


def note(answer: Answer, denied: Counter[str], allowed: Counter[str]) -> None:
    """Count a denial for the rule that gave it, an allow for each rule that had something to judge."""
    if answer.decision == "allow":
        allowed.update({say.part for say in answer.says if not say.idle})
    else:
        parts = {say.part for say in answer.says if say.rule == answer.rule and not say.allows}
        denied.update(["url_allowlist"] if "url_allowlist" in parts else parts)


def test_gate_and_second_judge_agree() -> None:
    world = World(SEED)
    count, wrong = 0, []
    denied: Counter[str] = Counter()
    allowed: Counter[str] = Counter()
    for _ in range(POLICIES):
        world.new_policy()
        for _ in range(RUNS):
            calls = world.calls()
            said = [(one.decision, one.rule_id) for one in decide(world.policy, OFFERED, calls)]
            for index, answer in enumerate(judge(world.policy, TOOLS, calls)):
                count += 1
                note(answer, denied, allowed)
                if said[index] != answer[:2]:
                    wrong.append((said[index], answer[:2], world.policy, calls[: index + 1]))
                    break
        for _ in range(FACTS):
            fact, tool = world.fact(), world.random.choice(OFFERED)
            one = decide_fact(world.policy, fact, tool)
            answer = judge_fact(world.policy, fact)
            count += 1
            note(answer, denied, allowed)
            if (one.decision, one.rule_id) != answer[:2]:
                wrong.append(((one.decision, one.rule_id), answer[:2], world.policy, fact))
    print(count, "pairs; denied:", dict(denied), "allowed:", dict(allowed))
    assert sorted(wrong, key=lambda case: len(repr(case)))[:3] == []
    assert count >= 10_000
    for part in [*ORDER, "private_networks"]:
        assert denied[part] >= ENOUGH, part
        assert allowed[part] >= ENOUGH, part
