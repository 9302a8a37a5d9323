"""Trees of agents in code: what they come to, what they may do and what they spend, under all policies above them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

import tachograph
from tachograph import Agent, Hooks, LLMInput, LLMOutput, Policy, Tool, ToolCall, parallel, sequence
from tachograph.evidence.verify import verify
from tachograph.fail.errors import InputError
from tachograph.runtime.driver import InDoubt
from tachograph.runtime.formats.strict_json import canonical
from tachograph.runtime.log import events as log
from tachograph.runtime.log import steps as log_steps
from tachograph.runtime.log.addresses import place_of
from tachograph.testing import decide
from tests.project import POLICY, cut, merged, script

TEAM = ["mate", "both", "send_message", "stop_agent"]
NAMES = ["say", "note", "think", "send", "middle", "leaf", "to_leaf", "exit_plan", *TEAM]
MIDDLE, LEAF = ("middle", {"task": "a"}), ("leaf", {"task": "b"})
WIDE: dict[str, Any] = {
    "tool_registry": {"allowed": NAMES, "denied": []}, "cycle_detection": {"max_repeats": 99},
    "loop_budget": {"max_iterations": 999, "max_tokens": 10**9, "max_tool_calls": 999},
    "agents": {"max_depth": 9, "max_children": 99, "max_parallel": 3}, "on_deny": "inform", "on_failure": "inform",
    "retry": {"backoff_base_ms": 0}, "prices": {"callable:model": {"input": "3000", "output": "7000"}},
}  # fmt: skip
CLOSED = {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer"}}}


@tachograph.tool(effect="pure", idempotent=True, transient=(ConnectionError,))
def say(text: str) -> str:
    """Say it."""
    if text.endswith("7"):
        raise ConnectionError
    return text


@tachograph.tool(effect="write", idempotent=True)
def note(path: tachograph.WritePath, text: str) -> str:
    """Write it down."""
    return text


def policy(**delta: Any) -> Policy:
    return Policy.from_dict(merged(merged(POLICY, WIDE), delta))


def tree(
    models: list[Any], policies: list[Policy], tools: list[Tool], plan: Policy | None = None, **rest: Any
) -> Agent:
    """Return the root of three levels, given what they are made of from the root down; the middle one may plan."""
    last = Agent(models[2], tools, policies[2])
    leaf, to_leaf = last.as_tool("leaf", "Help."), last.as_tool("to_leaf", "Help.", hands_over=True)
    mate = last.as_tool("mate", "Help.", stays=True)
    both = parallel(leaf, sequence(leaf)).as_tool("both", "Help.")
    more = [*tools, leaf, to_leaf, mate, both, "send_message", "stop_agent"]
    middle = Agent(models[1], more, policies[1], plan=plan).as_tool("middle", "Help.")
    return Agent(models[0], [*more, middle], policies[0], **rest)


CONDITIONS = [{}, {"arguments": {"/text": {"maxLength": 2}}}, {"limits": {"calls": 1}}, {"mounts": ["book"]}]


def random_policy(draw: random.Random) -> Policy:
    refused = draw.choice(["", "say", "note", "leaf", "think", "send"])
    allowed = [it for it in NAMES if it != refused]
    return policy(
        tool_registry={"allowed": allowed, "denied": [refused][: bool(refused)]},
        sandbox={"mounts": {"book": "write", "box": draw.choice(["read", "write"])}},
        tools={"say": draw.choice(CONDITIONS[:3]), "note": draw.choice(CONDITIONS)},
        loop_budget={"max_tool_calls": draw.choice([99, 9, 6])},
        agents={"max_depth": draw.choice([1, 2, 2])},
    )


def random_tree(draw: random.Random, root: Path) -> Agent:
    """Models and tools take a random time, in the loop and in threads; some calls fail, and some are denied."""

    async def think(arguments: Any, io: Any) -> Any:
        await asyncio.sleep(draw.randrange(4) / 1000)
        if draw.random() < 0.2:
            raise ConnectionError
        return {}

    def steps(*names: str) -> Any:
        turns = [draw.choices(names, k=draw.randint(1, 3)) for _ in range(draw.randint(1, 2))]
        to_mate = {"send_message": {"to": "mate", "text": "more"}, "stop_agent": {"agent": "mate"}}
        takes = dict.fromkeys("middle leaf mate both".split(), "task")
        takes |= {"to_leaf": "why", "exit_plan": "plan"}

        def call(name: str, n: int) -> Any:
            return name, to_mate.get(name) or ({takes[name]: f"{n}"} if name in takes else {"n": n})

        given = [[call(name, n) for n, name in enumerate(turn)] for turn in turns]

        async def model(asked: LLMInput) -> Any:
            await asyncio.sleep(draw.randrange(3) / 1000)
            return script(*given, *["done"] * 40)(asked)

        return model

    tools = [
        Tool("think", "?", CLOSED, CLOSED, "pure", think, idempotent=True, transient=(ConnectionError,)),
        Tool("send", "?", CLOSED, CLOSED, "external", lambda arguments, io: {}),
    ]
    own = ("think", "think", "think", "send", "absent")
    models = [
        steps("middle", "middle", "middle", "leaf", "think", "to_leaf", "mate", *TEAM),
        steps(*own, "leaf", "leaf", "to_leaf", "exit_plan", *TEAM),
        steps(*own),
    ]
    plan = random_policy(draw) if draw.random() < 0.3 else None
    rest: dict[str, Any] = {"root": root, "approve": lambda asked: draw.random() < 0.5}
    return tree(models, [random_policy(draw) for _ in models], tools, plan, **rest)


def test_random_live_trees_replay_and_resume_to_the_same_bytes(tmp_path: Path) -> None:
    async def one(n: int, draw: random.Random) -> None:
        worlds: list[Any] = []

        def listen(event: log.Event) -> None:
            if draw.random() < 0.03:
                worlds[0].stop(draw.choice(["", "1.c0", "1.c0/", "1.c0/1", "1.c0/1.c0/", "1.c1/1.c0"]))

        await tachograph.arecord(agents[n], "?", out=tmp_path / f"{n}", started=worlds.append, listen=listen)

    async def every() -> None:
        await asyncio.gather(*(one(number, random.Random(-number)) for number in range(100)))

    agents = [random_tree(random.Random(number), tmp_path) for number in range(100)]
    asyncio.run(asyncio.wait_for(every(), 60))
    kinds, doubts = set(), ""
    for number, agent in enumerate(agents):
        out, again = tmp_path / f"{number}", tmp_path / f"again{number}"
        events = tachograph.replay(agent, out).events
        kinds |= {(type(event), event.at.count("/")) for event in events}
        partial = cut(out, random.Random(number).randint(1, len(events) - 1), again)
        kept = (partial / "state.jsonl").read_bytes()
        try:
            resumed = tachograph.resume(agent, again)
        except InDoubt as doubt:
            doubts += "".join(doubt.places)
            resumed = tachograph.resume(agent, again, settled=dict.fromkeys(doubt.places, "done"))
        assert (again / "state.jsonl").read_bytes().startswith(kept)
        assert tachograph.replay(agent, again).events == resumed.events
        assert verify(out, "run") == verify(again, "run") == []
    of_all = (log.Failed, log.Waited, log.Stopped, log.ToolReturned)
    assert kinds >= {(kind, level) for kind in of_all for level in (1, 2)}
    assert kinds >= {(log.HandedOver, 0), (log.HandedOver, 1), (log.Answered, 1)}
    assert kinds >= {(log.TurnEnded, 1), (log.TurnEnded, 2), (log.Proposed, 0), (log.Proposed, 1)}
    assert "/" in doubts


@settings(max_examples=60)
@given(draw=st.randoms(use_true_random=False))
def test_nothing_is_done_that_a_policy_above_denies(draw: random.Random) -> None:
    """Each call that is made is allowed by every policy above it; what is refused is by the nearest that refuses."""

    def some() -> list[Any]:
        texts, paths = draw.sample(["a", "bb", "long"], 3), ("book/a", "box/a", "no/a")
        calls = [("note", {"path": draw.choice(paths), "text": text}) for text in texts]
        return draw.sample([("say", {"text": texts[0]}), *calls], 3)

    models = [script(some(), *its, some(), "") for its in ([[MIDDLE], [LEAF]], [[LEAF]], [])]
    of = [random_policy(draw) for _ in models]
    root = tree(models, of, [say, note])
    by, proposed, made = {"": of[0]}, {}, {}
    for event in root.run("?").events:
        place, (at, _, part) = place_of(event.at), event.at.rpartition(".")
        if isinstance(event, log.ModelReplied):
            proposed |= {f"{at}.c{n}": asdict(call) for n, call in enumerate(event.calls)}
        elif isinstance(event, log.AgentStarted):
            by[place] = of[1 if made[place[:-1]]["name"] == "middle" else 2]
        elif isinstance(event, log.Decided):
            for level, above in enumerate(it for it in reversed(by) if place.startswith(it)):
                calls = [call for at, call in made.items() if at.startswith(above)] + [proposed[at]]
                most = by[above].agents.limits["max_depth"]
                is_deep = calls[-1]["name"] in ("middle", "leaf") and level >= most
                refuses = is_deep or decide(by[above].data, root.all_tools, calls)[-1].decision == "deny"
                assert refuses == (event.decision == "deny" and event.above == level)
                if refuses:
                    break
            else:
                made[at] = proposed[at]
        assert not isinstance(event, log.Outcome) or part == "m1" or at in made


@settings(max_examples=60)
@given(draw=st.randoms(use_true_random=False))
def test_nothing_is_gained_by_a_hand_off_or_a_plan(draw: random.Random) -> None:
    """All policies of who handed over hold, and that for a plan until a person has allowed it."""
    texts = ("a", "bb", "long")
    some = [("say", {"text": text}) for text in texts]
    some += [("note", {"path": "box/a", "text": text}) for text in texts]
    special = [("to_leaf", {}), ("exit_plan", {"plan": "p"})]
    turns = [[it] for it in draw.choices(some + special * 2, k=12)]
    of, plans = [random_policy(draw) for _ in "ab"], [random_policy(draw) for _ in "ab"]
    last = Agent(script(*turns, ""), [say, note], of[1], plan=plans[1])
    to_leaf = last.as_tool("to_leaf", "Help.", hands_over=True)
    rest: dict[str, Any] = {"plan": plans[0], "approve": lambda asked: draw.random() < 0.7}
    root = Agent(script(*turns, ""), [say, note, to_leaf], of[0], **rest)
    hold, proposed = [(plans[0], root.tools), (of[0], root.tools)], {}
    for event in root.run("?").events:
        if isinstance(event, log.ModelReplied):
            proposed = {f"{event.at.rpartition('.')[0]}.c{n}": asdict(it) for n, it in enumerate(event.calls)}
        elif isinstance(event, log.Decided) and event.rule not in ("loop_budget", "tool_limits", "agents"):
            call = proposed[event.at.rpartition(".")[0]]
            said = [decide(it.data, tools, [call])[-1].decision == "allow" for it, tools in hold]
            is_right = all(said) if event.decision != "deny" else not said[event.above]
            assert is_right or "before" in event.reason
        elif isinstance(event, log.HandedOver):
            hold = [(plans[1], last.tools), (of[1], last.tools), *[(it, root.all_tools) for it, _ in hold]]
        elif isinstance(event, log.CallEnded) and "planning" in event.told and hold[0][0] in plans:
            del hold[0]


def test_no_tree_spends_more_than_its_root_allows() -> None:
    for draw in map(random.Random, range(150)):
        budget: dict[str, Any] = {
            "max_iterations": draw.randint(3, 30), "max_tokens": draw.choice([300, 1000, 9000]),
            "max_tool_calls": draw.randint(3, 30), "max_result_bytes": draw.choice([150, 400, 4000]),
            "max_attempts": draw.choice([None, 3, 9]), "max_cost": draw.choice(["99 USD", "9 USD", "3 USD"]),
        }  # fmt: skip
        ways = {"max_depth": 2, "max_children": 6, "max_parallel": 3}
        agents = {name: draw.randint(1, most) for name, most in ways.items()}
        spends_no_more(draw, policy(loop_budget=budget, agents=agents))


def spends_no_more(draw: random.Random, of: Policy) -> None:
    """Tokens and money of a request count once it is answered, so those under way may overdraw by what they sent."""

    def model(*names: str) -> Any:
        async def model(asked: LLMInput) -> LLMOutput:
            await asyncio.sleep(0)
            turn = [] if asked.step_index > draw.randint(1, 8) else draw.choices(names, k=draw.randint(1, 4))
            given = [ToolCall(it, {"text" if it == "say" else "task": f"{draw.random()}"}) for it in turn]
            tokens = min(draw.choice([20] * 9 + [10**6]), asked.max_output_tokens)
            usage = {"input_tokens": draw.randint(0, 60), "output_tokens": tokens}
            return LLMOutput(tool_calls=given, final_answer=None if given else "done", usage=usage)

        return model

    models = [model("say", "middle", "middle", "leaf"), model("say", "leaf", "leaf"), model("say")]
    events = tree(models, [of, policy(), policy()], [say]).run("?").events
    refused = {event.at for event in events if isinstance(event, log.Decided) and event.decision == "deny"}
    begun, requests, sizes = {}, [], {}
    for n, event in enumerate(events):
        place = place_of(event.at)
        if isinstance(event, log.ModelReplied):
            requests.append((begun[place], n, event.usage))
        elif isinstance(event, log.RunStarted | log.StepEnded | log.AgentStarted):
            begun[place] = n  # that of the next step
        elif isinstance(event, log.ToolReturned):
            sizes[f"{event.at}.d1"] = event.size
        elif isinstance(event, log.AgentEnded):
            sizes[f"{place[:-1]}.e.d"] = len(canonical({"ending": event.ending, "answer": event.answer}))
    tried = [event.at for event in events if isinstance(event, log.ToolReturned | log.Failed)]
    children = sum(isinstance(event, log.AgentStarted) for event in events)
    limits, price = of.limits.limits | of.agents.limits, of.prices["callable:model"]
    assert children <= limits["max_children"]
    assert max(event.at.count("/") for event in events) <= limits["max_depth"]
    assert len(requests) <= limits["max_iterations"]
    assert children + sum(at.endswith(".i1") for at in tried) <= limits["max_tool_calls"]
    assert len(tried) <= limits.get("max_attempts", len(tried))
    assert sum(size for at, size in sizes.items() if at not in refused) <= limits["max_result_bytes"]
    assert sum(it.output_tokens for *_, it in requests) <= limits["max_tokens"]
    last = max((began for began, _, _ in requests), default=0)
    late = [it.input_tokens for _, ended, it in requests if ended > last]  # under way when the last one began
    assert sum(it.input_tokens + it.output_tokens for *_, it in requests) <= limits["max_tokens"] + sum(late)
    cost = sum(price.cost(it) for *_, it in requests)
    assert cost <= limits["max_cost"] + sum(-(-it * price.input // 10**6) for it in late)


def of_two(child: Agent, *, calls: Any = (LEAF,), delta: Any = None, **rest: Any) -> Agent:
    """Return an agent that starts another one and then answers."""
    return Agent(script(calls, "done"), [child.as_tool("leaf", "Help.")], policy(**delta or {}), **rest)


async def test_a_stream_tells_what_the_agents_below_do() -> None:
    places = "0 1.m1 1.c0.d 1.c0/0 1.c0/1.m1 1.c0/1.e 1.c0/end 1.e 2.m1 2.e end"
    child = Agent(script("a"), [], policy())
    assert [event.at async for event in of_two(child).stream("?")] == places.split()


def test_an_agent_below_has_hooks_and_an_answer_of_a_type() -> None:
    seen: list[str] = []
    hooks = Hooks(before_call=lambda about: seen.append(about["call"]["name"]))
    model = script([("say", {"text": "x"})], "no object", '{"n":5}')
    result = of_two(Agent(model, [say], policy(), hooks=hooks, output_type=CLOSED)).run("?")
    assert seen == ["say"]  # and not of the call that starts the agent
    (ended,) = [event for event in result.events if isinstance(event, log.AgentEnded)]
    assert (ended.ending, ended.answer) == ("final_answer", '{"n":5}')


@pytest.mark.parametrize(
    ("below", "root"),
    [
        ({"mounts": {"book": "."}}, {}), ({"hosts": {"good.test": "."}}, {}), ({"deps": 1}, {"deps": 2}),
        ({"approve": lambda it: True}, {"approve": lambda it: True}),
        ({"policy": policy(redact={"kinds": ["email"]})}, {}),
        ({"tools": [Tool("say", "?", CLOSED, CLOSED, "pure", print)]}, {"tools": [say]}),
    ],
)  # fmt: skip
def test_what_is_of_the_whole_run_is_refused_in_an_agent_far_below(below: Any, root: Any) -> None:
    def agent(*agents: Tool, tools: Any = (), **rest: Any) -> Agent:
        return Agent(script("a"), [*tools, *agents], **{"policy": policy(), **rest})

    middle = agent(agent(**below).as_tool("leaf", "?"), **below).as_tool("middle", "?")
    with pytest.raises(InputError) as refused:
        agent(middle, **root)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("scope", ["", "1.c1", "1.c1/"])
async def test_an_agent_that_is_stopped_while_it_waits_for_its_turn_does_not_begin(scope: str) -> None:
    worlds: list[Any] = []

    async def model(asked: LLMInput) -> LLMOutput:
        worlds[0].stop(scope)
        await asyncio.sleep(0)
        return LLMOutput(final_answer="a")

    calls = [("leaf", {"task": task}) for task in "ab"]
    agent = of_two(Agent(model, [], policy()), calls=calls, delta={"agents": {"max_parallel": 1}})
    events = (await agent.arun("?", started=worlds.append)).events
    assert [event.at for event in events if isinstance(event, log.AgentStarted)] == ["1.c0/0"]


def test_a_person_is_asked_as_the_policy_says_that_wants_one() -> None:
    asked: list[int] = []
    child = Agent(script([("say", {"text": "a"})], "never"), [say], policy(approval={"timeout_s": 9}))
    asks: Any = {"approval": {"required_for": ["say"], "timeout_s": 5}, "on_deny": "terminate"}
    agent = of_two(child, delta=asks, approve=lambda it: asked.append(it.timeout_s))
    ended = [event.ending for event in agent.run("?").events if isinstance(event, log.AgentEnded)]
    assert (asked, ended) == ([5], ["approval_refused"])


def test_the_same_agent_may_be_given_to_several() -> None:
    leaf = Agent(script("a"), [], policy())
    middle = of_two(leaf).as_tool("middle", "Help.")
    root = Agent(script([MIDDLE, LEAF], "done"), [middle, leaf.as_tool("leaf", "Help.")], policy())
    started = [event.at for event in root.run("?").events if isinstance(event, log.AgentStarted)]
    assert sorted(started) == ["1.c0/0", "1.c0/1.c0/0", "1.c1/0"]


def test_half_a_character_in_an_agent_below_is_refused_before_the_run_begins() -> None:
    asked: list[LLMInput] = []
    with pytest.raises(InputError):
        leaf = Agent(script("a"), [], policy(), instructions="\ud800").as_tool("leaf", "Help.")
        Agent(asked.append, [leaf], policy()).run("?")
    assert asked == []


def test_an_agent_that_ends_and_was_not_started_makes_no_run() -> None:
    events = of_two(Agent(script("a"), [], policy())).run("?").events
    with pytest.raises(LookupError):
        log_steps.steps_of([it for it in events if place_of(it.at) == "" or it.at == "1.c0/end"])


def test_what_an_agent_answers_is_guarded_also_where_it_was_to_go_on_in_the_background() -> None:
    seen: list[Any] = []
    hooks = Hooks(after_call=lambda about: seen.append(about["result"]) or {"deny": "no"})
    calls = [("leaf", {"task": "a", "background": True})]
    result = of_two(Agent(script("the answer"), [], policy()), calls=calls, hooks=hooks).run("?")
    assert seen == [{"ending": "final_answer", "answer": "the answer"}]
    assert "the answer" not in str(result.messages)
    hooks = Hooks(after_call=lambda about: {"arguments": {"task": "b"}})  # it was made with others
    made = of_two(Agent(script("the answer"), [], policy()), calls=calls, hooks=hooks).run("?")
    assert log_steps.steps_of(made.events)[0].calls[0].call.arguments == calls[0][1]


async def test_an_attempt_under_way_counts_for_the_agents_in_the_background() -> None:
    decided = asyncio.Event()

    async def think(arguments: Any, io: Any) -> Any:
        await decided.wait()
        return {}

    leaf = Agent(script([("say", {"text": "a"})], "b"), [say], policy()).as_tool("leaf", "Help.")
    calls = [("leaf", {"task": "a", "background": True}), ("think", {"n": 1})]
    tools, listen = [leaf, Tool("think", "?", CLOSED, CLOSED, "pure", think)], {"1.c0/1.c0.d": decided.set}
    agent = Agent(script(calls, *["c"] * 3), tools, policy(loop_budget={"max_attempts": 1}))
    made = await agent.arun("?", listen=lambda event: listen.get(event.at, bool)())
    (denied,) = [it for it in made.events if isinstance(it, log.Decided) and it.decision == "deny"]
    assert (denied.at, denied.rule) == ("1.c0/1.c0.d", "loop_budget")


@pytest.mark.parametrize(
    ("tasks", "order"),
    [
        (["x", "say"], "write x, read, told say, end x"),  # which saw what was written, and was told first
        (["x", "y"], "write y, write x, end x, told x, end y"),  # the last word is of who was told first
        (["x", "say"], "read, write x, end x, told x, end say"),  # which saw nothing, and was told last
    ],
)
def test_a_check_does_not_guess_which_of_two_that_overlap_was_first(
    tmp_path: Path, tasks: list[str], order: str
) -> None:
    left, changed = order.split(", "), asyncio.Condition()

    async def turn(name: str) -> None:
        """Wait for the turn of a part of the first run; nothing is left where it is made again."""
        async with changed:
            await changed.wait_for(lambda: name not in left or name == left[0])
            del left[: left[:1] == [name]]
            changed.notify_all()

    @tachograph.tool(effect="write", idempotent=True, name="note")
    async def write(path: tachograph.WritePath, text: str, io: Any) -> str:
        """Write it."""
        await turn(f"write {text}")
        io.write(path, text)
        await turn(f"end {text}")
        return text

    @tachograph.tool(effect="read", name="say")
    async def read(path: tachograph.ReadPath, io: Any) -> str:
        """Read it."""
        await turn("read")
        text = str(io.read(path)) if path in io.list("box") else "nothing"
        await turn("end say")
        return text

    async def model(asked: LLMInput) -> LLMOutput:
        task, path = asked.messages[0]["content"], "box/a.txt"
        if asked.step_index == 1:
            name, more = ("say", {}) if task == "say" else ("note", {"text": task})
            return LLMOutput(tool_calls=[ToolCall(name, {"path": path, **more})])
        await turn(f"told {task}")
        return LLMOutput(final_answer=task)

    leaf = Agent(model, [write, read], policy()).as_tool("leaf", "Help.")
    calls = [("leaf", {"task": task}) for task in tasks]
    lead = Agent(script(calls, [("say", {"path": "box/a.txt"})], "done"), [leaf, read], policy())
    asyncio.run(tachograph.arecord(lead, "?", out=tmp_path / "run"))
    assert left == [] and tachograph.check(lead, tmp_path / "run") == []
