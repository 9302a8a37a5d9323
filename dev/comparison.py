"""Measure the same research in Tachograph, LangGraph and Strands Agents, with models that follow one script.

    make release-check

Two researchers search side by side, a writer writes, and a reviewer sends the work back once. What a model says follows
from what it has read, so all three have to hand on the same work. Each runs alone, and with what it can keep in files.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from itertools import product
from operator import add
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple, TypedDict

import strands
from langchain.agents import create_agent
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from strands.models import Model
from strands.multiagent import GraphBuilder
from strands.session import FileSessionManager

import tachograph
from tachograph import Agent, LLMInput, LLMOutput, Policy, ToolCall, loop_until, parallel, sequence
from tachograph.runtime.log.events import Decided, ModelReplied

ROUNDS = 20
ROLES = ["law", "practice", "writer", "reviewer"]
QUESTION = "What must a driver do when the recorder fails?"
PAGES = {"rule": "Record by hand.", "repair": "Repair it within seven days."}
# who says it, after having read what, a query or an answer, tokens of request and reply
SCRIPT: list[tuple[str, list[str], str, str, int, int]] = [
    ("law", [QUESTION], "rule", "", 40, 12),
    ("law", ["Record by hand."], "", "Law: by hand.", 70, 9),
    ("practice", [QUESTION], "repair", "", 41, 12),
    ("practice", [QUESTION, "repair"], "", "Practice: within a week.", 72, 11),
    ("writer", ["Law: by hand.", "Practice: within a week."], "", "Write it down.", 80, 8),
    ("writer", ["Write it down.", "Say until when."], "", "Write it down, repair it within a week.", 120, 19),
    ("reviewer", ["Write it down."], "", "Say until when.", 60, 7),
    ("reviewer", ["repair it within a week."], "", "Accepted", 85, 3),
]


class Script:
    """What all models say; it counts model calls and tool calls.

    Args:
        top: How many pages the second researcher asks for.
    """

    def __init__(self, top: int = 3) -> None:
        self.asked: list[str] = []
        self.searched: list[str] = []
        self._top = {"law": 3, "practice": top}

    def reply(self, role: str, read: object) -> tuple[dict[str, Any], str, int, int]:
        """Return the arguments of a search, or an answer, and the tokens."""
        self.asked.append(role)
        lines = [line for line in SCRIPT if line[0] == role and all(need in str(read) for need in line[1])]
        query, *rest = lines[-1][2:]
        return {"query": query, "top": self._top[role]} if query else {}, *rest

    def search(self, query: str, top: int) -> str:
        """Search pages."""
        self.searched.append(query)
        return PAGES[query]


class Made(NamedTuple):
    """What a pipeline came to: what has to be the same in all libraries, the seconds, what is left, what was denied."""

    same: tuple[str, int, int, int]
    seconds: float
    left: str
    denied: tuple[str, ...] = ()


def is_accepted(said: str) -> bool:
    """Return whether a reviewer accepts."""
    return said.startswith("Accepted")


def tachograph_model(script: Script, role: str) -> Callable[[LLMInput], LLMOutput]:
    """Return a model of Tachograph that follows a script."""

    def model(asked: LLMInput) -> LLMOutput:
        search, answer, used, made = script.reply(role, [*asked.messages])
        usage = {"input_tokens": used, "output_tokens": made}
        if search:
            return LLMOutput(tool_calls=[ToolCall("search", search)], usage=usage)
        return LLMOutput(final_answer=answer, usage=usage)

    return model


def tachograph_pipeline(script: Script) -> Agent:
    """Return the pipeline in Tachograph."""
    policy = Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["search", "graph", *ROLES]},
            "tools": {"search": {"arguments": {"/top": {"maximum": 5}}}},
            "agents": {"max_depth": 1, "max_children": 8, "max_parallel": 2},
            "loop_budget": dict.fromkeys(
                ("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes"), 10_000
            ),
            "cycle_detection": {"max_repeats": 3},
            "on_deny": "inform",
        }
    )
    search = tachograph.tool(script.search, effect="pure")

    def agent(role: str, *tools: Any) -> Any:
        made = Agent(tachograph_model(script, role), [*tools], policy, instructions=f"You are the {role}.")
        return made.as_tool(role, f"Works as the {role}.")

    found = parallel(agent("law", search), agent("practice", search))
    written = loop_until(agent("writer"), is_accepted, reviewer=agent("reviewer"), most=3)
    return sequence(found, written).as_agent(policy)


class LangChainModel(BaseChatModel):
    """A chat model of LangChain that follows a script."""

    script: Any
    role: str

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **rest: Any) -> LangChainModel:
        """Return the model itself: the script knows the tools."""
        return self

    def _generate(self, messages: Any, *rest: Any, **more: Any) -> ChatResult:
        search, answer, used, made = self.script.reply(self.role, messages)
        said = AIMessage(
            answer,
            tool_calls=[{"name": "search", "args": search, "id": self.role}] if search else [],
            usage_metadata={"input_tokens": used, "output_tokens": made, "total_tokens": used + made},
            response_metadata={"model_name": "scripted"},
        )
        return ChatResult(generations=[ChatGeneration(message=said)])


class Work(TypedDict, total=False):
    """The state of the graph of LangGraph."""

    question: str
    found: Annotated[list[str], add]
    draft: str
    review: str
    rounds: int


def langgraph_pipeline(script: Script, saver: Any) -> Any:
    """Return the pipeline in LangGraph."""

    def agent(role: str, *tools: Any) -> Callable[..., str]:
        model = LangChainModel(script=script, role=role)
        made = create_agent(model, [*tools], system_prompt=f"You are the {role}.")

        def asked(*parts: str) -> str:
            said = made.invoke({"messages": [{"role": "user", "content": "\n\n".join(parts)}]})
            return said["messages"][-1].text

        return asked

    law, practice = agent("law", script.search), agent("practice", script.search)
    writer, reviewer = agent("writer"), agent("reviewer")

    def write(work: Work) -> Work:
        draft = writer(work["question"], *work["found"], work.get("draft", ""), work.get("review", ""))
        return {"draft": draft, "rounds": work.get("rounds", 0) + 1}

    def after_review(work: Work) -> str:
        return END if is_accepted(work["review"]) or work["rounds"] == 3 else "writer"

    graph = StateGraph(Work)
    graph.add_node("law", lambda work: {"found": [law(work["question"])]})
    graph.add_node("practice", lambda work: {"found": [practice(work["question"])]})
    graph.add_node("writer", write)
    graph.add_node("reviewer", lambda work: {"review": reviewer(work["question"], work["draft"])})
    graph.add_edge(START, "law")
    graph.add_edge(START, "practice")
    graph.add_edge(["law", "practice"], "writer")
    graph.add_edge("writer", "reviewer")
    graph.add_conditional_edges("reviewer", after_review)
    return graph.compile(checkpointer=saver)


class StrandsModel(Model):
    """A model of Strands Agents that follows a script."""

    # it has no settings, and is asked for text alone
    get_config = update_config = structured_output = lambda *asked, **rest: {}

    def __init__(self, script: Script, role: str) -> None:
        self._script, self._role = script, role

    async def stream(self, messages: Any, *rest: Any, **more: Any) -> AsyncIterator[Any]:
        """Yield a reply of the script as events."""
        search, answer, used, made = self._script.reply(self._role, messages)
        begun = {"toolUse": {"name": "search", "toolUseId": self._role}} if search else {}
        usage = {"inputTokens": used, "outputTokens": made, "totalTokens": used + made}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": begun}}
        said = {"toolUse": {"input": json.dumps(search)}} if search else {"text": answer}
        yield {"contentBlockDelta": {"delta": said}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if search else "end_turn"}}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


def strands_pipeline(script: Script, session: Any) -> Any:
    """Return the pipeline in Strands Agents."""
    graph = GraphBuilder()

    def add_agent(role: str, *tools: Any) -> None:
        prompt = f"You are the {role}."
        model = StrandsModel(script, role)
        made = strands.Agent(model, tools=[*tools], system_prompt=prompt, name=role, callback_handler=None)
        graph.add_node(made, role)

    def is_sent_back(state: Any) -> bool:
        review = state.results.get("reviewer")  # with a session it is asked before there is one
        return review is not None and not is_accepted(str(review.result))

    search = strands.tool(script.search)
    add_agent("law", search)
    add_agent("practice", search)
    add_agent("writer")
    add_agent("reviewer")
    graph.add_edge("law", "writer")
    graph.add_edge("practice", "writer")
    graph.add_edge("writer", "reviewer")
    graph.add_edge("reviewer", "writer", is_sent_back)
    graph.set_max_node_executions(2 + 3 * 2)
    graph.set_session_manager(session)
    return graph.build()


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work returns, and the seconds that it took."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def in_tachograph(script: Script, folder: Path | None) -> Made:
    """Return what the pipeline in Tachograph came to."""
    agent = tachograph_pipeline(script)
    made, took = timed(
        lambda: tachograph.record(agent, QUESTION, out=folder) if folder else agent.run(QUESTION)
    )
    # the graph stands for a model as well; those that are asked are in the agents below
    replies = [event for event in made.events if isinstance(event, ModelReplied) and "/" in event.at]
    tokens = sum(it.usage.input_tokens + it.usage.output_tokens for it in replies)
    same = made.answer, len(script.asked), len(script.searched), tokens
    denied = [event.place for event in made.events if isinstance(event, Decided) and event.decision == "deny"]
    left = f"{len(tachograph.check(agent, folder))} differences in `check`" if folder else ""
    return Made(same, took, left, tuple(denied))


def in_langgraph(script: Script, folder: Path | None) -> Made:
    """Return what the pipeline in LangGraph came to."""
    place = str(folder / "checkpoints.sqlite") if folder else ":memory:"
    with SqliteSaver.from_conn_string(place) as saver, get_usage_metadata_callback() as counted:
        graph = langgraph_pipeline(script, saver if folder else None)
        thread: Any = {"configurable": {"thread_id": "1"}}
        made, took = timed(lambda: graph.invoke({"question": QUESTION}, thread))
        left = f"{len([*saver.list(None)])} checkpoints"
    tokens = sum(usage["total_tokens"] for usage in counted.usage_metadata.values())
    return Made((made["draft"], len(script.asked), len(script.searched), tokens), took, left)


def in_strands(script: Script, folder: Path | None) -> Made:
    """Return what the pipeline in Strands Agents came to."""
    graph = strands_pipeline(script, FileSessionManager("1", str(folder)) if folder else None)
    made, took = timed(lambda: graph(QUESTION))
    # by node: the total of the graph adds all that an agent ever used, whenever it is visited again
    tokens = sum(node.accumulated_usage["totalTokens"] for node in made.results.values())
    answer = str(made.results["writer"].result).strip()
    same = answer, len(script.asked), len(script.searched), tokens
    return Made(same, took, f"{len(made.results)} results of nodes")


LIBRARIES: dict[str, tuple[Callable[..., Made], list[Any]]] = {
    "Tachograph": (in_tachograph, [tachograph_pipeline]),
    f"LangGraph {version('langgraph')}": (in_langgraph, [Work, langgraph_pipeline]),
    f"Strands Agents {version('strands-agents')}": (in_strands, [strands_pipeline]),
}


def lines_of(parts: list[Any]) -> int:
    """Return how many lines of code there are; a docstring is one line here."""
    lines = [line.strip() for part in parts for line in inspect.getsource(part).splitlines()]
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in lines)


def main() -> int:
    """Print what each library came to, and return 1 where they differ."""
    os.environ["LANGSMITH_TRACING_V2"] = "false"  # the name that is asked first
    made: dict[tuple[str, bool], list[Made]] = {}
    with TemporaryDirectory() as place:
        # in turns, so that a busy machine slows all of them down
        for number, keeps, name in product(range(ROUNDS + 1), (False, True), LIBRARIES):
            folder = Path(place, name, str(number)) if keeps else None
            if folder:
                folder.mkdir(parents=True)
            made.setdefault((name, keeps), []).append(LIBRARIES[name][0](Script(), folder))
        for name, (_, parts) in LIBRARIES.items():
            # the first run imports what is imported late
            alone, filed = (median(it.seconds for it in made[name, keeps][1:]) for keeps in (False, True))
            sizes = [it.stat().st_size for it in Path(place, name, "0").rglob("*") if it.is_file()]
            (_, asked, searched, tokens), _, left, _ = made[name, True][0]
            print(f"{name}: {asked} model calls, {searched} tool calls, {tokens} tokens, ", end="")
            print(
                f"{lines_of(parts)} lines, {1000 * alone:.0f} ms, {1000 * filed:.0f} ms with files", end="; "
            )
            print(f"files: {len(sizes)}, {sum(sizes)} bytes, {left}")
        greedy = in_tachograph(Script(top=50), Path(place, "greedy"))
    print(f"Tachograph, a search beyond its bound: denied by {', '.join(greedy.denied)}; {greedy.left}")
    same = {it.same for runs in made.values() for it in runs}
    if len(same) > 1 or not greedy.denied or not greedy.left.startswith("0 "):
        print(f"MISSED comparison: {same}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
