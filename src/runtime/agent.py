"""An agent in code: a model, tools, a policy, and what its tools may touch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from msgspec import structs

from ..fail.errors import InputError, ToolError
from .clock import random_hex, random_key, variable, wall_ns
from .formats.documents import path_of
from .formats.strict_json import canonical
from .io.workspace import Host, Mount, Workspace
from .log.addresses import place_of
from .log.events import Event, RunStarted, decode
from .log.steps import steps_of
from .log.values import WindowLimits
from .loop.hooks import HOOKS, Hooks
from .loop.state import RunSpec, gates_of
from .loop.team import team_tool
from .mcp.server import McpServer
from .models.failure_messages import with_all_results
from .models.fallback import Fallback, is_model, models_of
from .models.langchain_messages import ChatModel
from .models.types import Model, Piece, choice_of, clean_text, read_history, whole_text
from .policy.consistency import check_mounts, check_names, check_prices, check_redaction
from .policy.policy import Policy
from .redaction.redactor import Redactor
from .run import RunMade, head_of, make_run
from .run_result import RunOptions, RunResult, reached
from .schema.answer_type import AnswerType
from .tools.agents import EXIT_PLAN, TEAM_NAMES, agent_tool, with_those_below
from .tools.contract import Tool
from .tools.langchain import from_langchain, is_of_langchain
from .tools.loader import LoadedTools, load_tools
from .tools.project_modules import modules_behind
from .world.people import Approve
from .world.real import Real, Tell, run_in_new_loop, streamed


class Agent:
    """An agent. Its runs are independent of each other.

    Args:
        llm: The model: `anthropic:MODEL` or `openai:MODEL` (`model_of` takes options); any callable of an LLMInput that
            returns an LLMOutput, a coroutine function too; a chat model of LangChain; or a Fallback of several.
        tools: The tools; a name stands for `tools/NAME.py` of the project, and `mcp(...)` for those of a server.
        policy: The policy; there is no run without one.
        instructions: The system message.
        root: The folder of the project.
        hooks: Functions that are asked at points of a run, in this order.
        approve: Asks a person about a call: `approve_at_terminal`, or a function of an AskPerson that returns an Answer
            or a bool. Without it nobody is asked, and a call that needs a person is refused.
        mounts: Folders for the mounts of the policy. A mount for writing without one is private to each run.
        hosts: Folders that answer for hosts.
        output_type: A JSON Schema of an object, or a type (see AnswerType), for the final answer; else it is any text.
        output_retries: How often the model is asked again for an answer that does not fit.
        deps: The caller's own object, for tools that take a Context.
        window: How much of what went before the model is shown; all of it unless given.
        plan: A policy that holds as well until a person has allowed a plan: the agent first only does what both allow,
            and shows its plan by the tool `exit_plan`. Both list that tool.

    Raises:
        InputError: The model cannot be had, or the output type has no JSON Schema.
        PolicyError: A mount is not declared by the policy, or it speaks of a tool that there is not.
        ToolError: There is no tool of a name, or it breaks the contract.

    Attributes:
        root: The folder of the project.
    """

    # a program may hold its agent, and a command that imports it begins none of its runs
    is_being_imported = False

    def __init__(
        self,
        llm: Model | ChatModel | str | Fallback,
        tools: Iterable[Tool | str | McpServer],
        policy: Policy,
        *,
        instructions: str = "",
        root: str | Path = ".",
        hooks: Hooks | Sequence[Hooks] = (),
        approve: Approve | None = None,
        mounts: Mapping[str, str | Path] | None = None,
        hosts: Mapping[str, str | Path] | None = None,
        output_type: Any = None,
        output_retries: int = 2,
        deps: Any = None,
        window: WindowLimits | None = None,
        plan: Policy | None = None,
    ) -> None:
        _refuse_wrong(locals())
        self.models, self.policy, self.approve = models_of(llm), policy, approve
        self.instructions = whole_text(instructions, "the agent's instructions")
        self.answer_type = None if output_type is None else AnswerType(output_type)
        self._output_retries, self._deps, self._window = output_retries, deps, window
        if self.answer_type is not None:
            self.instructions = f"{self.instructions}\n\n{self.answer_type.instructions()}".lstrip()
        self.hooks = (hooks,) if isinstance(hooks, Hooks) else tuple(hooks)
        self.tools: list[Tool] = []
        self.modules: dict[str, dict[str, str]] = {}
        self.root = Path(root)
        given = [tool for it in tools for tool in (it.tools if isinstance(it, McpServer) else [it])]
        given += [EXIT_PLAN] if plan is not None and EXIT_PLAN not in given else []
        given = [from_langchain(tool) if is_of_langchain(tool) else tool for tool in given]
        given = [team_tool(tool) if tool in TEAM_NAMES else tool for tool in given]
        for wrong in [tool for tool in given if not isinstance(tool, Tool | str)]:
            what = f"{getattr(wrong, '__name__', type(wrong).__name__)} is not a tool"
            raise ToolError(what, remedy="put @tool above the function, or give the name of a tool")
        for tool in given:
            loaded = load_tools([tool], self.root) if isinstance(tool, str) else LoadedTools([tool], {})
            self.tools += loaded.tools
            self.modules |= loaded.modules
        names = [tool.name for tool in self.tools]
        for name in {name for name in names if names.count(name) > 1}:
            raise ToolError(f"two tools are called {name!r}", remedy="give one of them another name")
        self.all_tools = with_those_below(self.tools)
        self._mounts = {name: path_of(path, f"mounts: {name!r}") for name, path in (mounts or {}).items()}
        self._hosts = {name: path_of(path, f"hosts: {name!r}") for name, path in (hosts or {}).items()}
        check_mounts(policy, self._mounts)
        self._own = [policy] if plan is None else [policy, plan]
        self._below = [it.agent for it in self.all_tools if isinstance(it.agent, Agent)]
        for agent in self._below:
            self._check_below(agent)
            self.modules = agent.modules | self.modules
        for its in self.policies:
            check_redaction(policy, its)
        for its in self._own:
            check_prices(its, (choice_of(model).name for it in (self, *self._below) for model in it.models))
            # a policy may serve several agents, but a name that it neither allows nor denies is of a tool of this one
            check_names(its, [*(tool.name for tool in self.all_tools), *its.names.allowed, *its.names.denied])
        for its in self._own if plan is not None else ():
            if EXIT_PLAN not in its.names.allowed:
                remedy = f"add {EXIT_PLAN!r}, the tool that shows a plan to a person"
                raise its.error("/tool_registry/allowed", "no plan could ever be allowed", remedy)
        # these refuse here, and not at the first run, what cannot decide a call, or stand in a record
        self._gates = gates_of(policy, plan, self.tools)
        try:
            decode(canonical(head_of(self._spec("", ""))))
        except (TypeError, ValueError) as error:
            raise InputError(f"no record can hold this agent ({error})", remedy="change that part") from None

    def _check_below(self, agent: Agent) -> None:
        """Refuse an agent that has what is of the whole run, and is another one there."""
        for what in ("_mounts", "_hosts", "approve", "_deps"):
            if (its := getattr(agent, what)) and its != getattr(self, what):
                name = what.removeprefix("_")
                what = f"an agent that it may start has other {name}"
                raise InputError(what, remedy=f"give the same {name} to both")

    @property
    def policies(self) -> list[Policy]:
        """Its policy and that for a plan, and those of all agents that it may start."""
        return [policy for agent in (self, *self._below) for policy in agent._own]

    def as_tool(self, name: str, description: str, *, hands_over: bool = False, stays: bool = False) -> Tool:
        """Return a tool whose calls start this agent, in the same run and the same record.

        It acts under its own policy and under those of all agents above it. Its mounts, hosts, people and `deps` are
        those of the run.

        Args:
            name: The name of the tool.
            description: What a model reads about it.
            hands_over: Whether the agent goes on in the place of the one that calls, with all that was said.
            stays: Whether it is a team mate: it works beside the one that calls, and waits for more after each answer.

        Raises:
            ToolError: No tool can have the name, or `hands_over` and `stays` are both set.
        """
        return agent_tool(name, description, self, hands_over=hands_over, stays=stays)

    def start(self, place: str, arguments: dict[str, Any]) -> RunSpec:
        """Return what the agent is made with where a call starts it."""
        return self._spec(arguments.get("task", ""), "")

    def _spec(self, question: str, run_id: str) -> RunSpec:
        return RunSpec(
            run_id,
            question,
            self._gates,
            self.models,
            self.instructions,
            hooks=self.hooks,
            output=self.answer_type,
            output_retries=self._output_retries,
            window=self._window,
        )

    def code(self) -> dict[str, dict[str, str]]:
        """Return path and SHA-256 of the modules of the project that its functions stand in, and of what they import.

        Returns:
            By the name of the tool; under "" those of model and hooks.
        """
        own = [tool for tool in self.all_tools if not tool.digest and tool.agent is None]
        found = {tool.name: modules_behind(tool.run, self.root) for tool in own}
        agents = (self, *self._below)
        asked = [getattr(hooks, point) for agent in agents for hooks in agent.hooks for point in HOOKS]
        for function in (*(model for agent in agents for model in agent.models), *filter(None, asked)):
            found[""] = found.get("", {}) | modules_behind(function, self.root)
        return found

    def spec(
        self,
        question: str,
        *,
        run_id: str,
        key: bytes | None = None,
        is_asked: bool = True,
        **options: Unpack[RunOptions],
    ) -> RunSpec:
        """Return what a run on a question is made with.

        Args:
            question: The question.
            run_id: The name of the run.
            key: What placeholders of secrets are made with; None where it is gone, as that of a record is.
            is_asked: Whether its model is asked, and so needs its own key; else a record answers.
            **options: `seed`, `history`, `deps` and `deadline_s`, see RunOptions.

        Raises:
            InputError: The question, the history or an option is refused, the module of the agent is being imported,
                or a model lacks its key.
        """
        if Agent.is_being_imported:
            remedy = 'put that under `if __name__ == "__main__":`'
            raise InputError("importing the module starts a run", remedy=remedy)
        if unknown := options.keys() - RunOptions.__annotations__.keys():
            known = ", ".join(RunOptions.__annotations__)
            raise InputError(f"a run has no option {min(unknown)!r}", remedy=f"there are {known}")
        question = whole_text(question, "the question")
        for model in (it for agent in (self, *self._below) if is_asked for it in agent.models):
            getattr(model, "with_key", lambda: None)()
        if type(options.get("seed", 0)) is not int:
            raise InputError("the seed is not a whole number", remedy="give one, such as 7")
        deadline_s = options.get("deadline_s", 0)
        if type(deadline_s) is not int or not 0 <= deadline_s <= 604_800:
            raise InputError("deadline_s is not a number of seconds", remedy="give a whole one, such as 60")
        redactor = live_redactor(self.policy, key or random_key())
        redactor.is_key_gone = key is None
        return structs.replace(
            self._spec(question, run_id),
            seed=options.get("seed", 0),
            history=read_history(options.get("history", ())),
            redactor=redactor,
            deadline_s=deadline_s,
        )

    def workspace(
        self,
        on_read: Callable[[str, str], None] = lambda path, sha256: None,
        private: Path | None = None,
        deps: Any = None,
    ) -> Workspace:
        """Return what the tools of one run may touch.

        Args:
            on_read: Is told path and SHA-256 of each document that is read.
            private: Where the private folders of a run are made and stay; without it they are temporary.
            deps: The caller's own object, in place of the agent's.
        """
        mounts = {
            name: Mount(mode, self._mounts.get(name), _label(name, self._mounts.get(name)))
            for name, mode in self.policy.mounts.modes.items()
            if name in self._mounts or mode == "write"
        }
        hosts = {name: Host(folder, _label(name, folder)) for name, folder in self._hosts.items()}
        deps = self._deps if deps is None else deps
        guarded = {f"policy {path.name}": path for path in self.policy.paths}
        return Workspace(
            mounts, hosts, private=private, guarded=guarded, on_read=on_read, network=True, deps=deps
        )

    def run(self, question: str, **options: Unpack[RunOptions]) -> RunResult:
        """Take a question from start to ending, and return what the run came to.

        Where an event loop is running, await `arun` instead.

        Args:
            question: The question.
            **options: `seed`, `history`, `deps` and `deadline_s`, see RunOptions.

        Raises:
            InputError: The question, the history or an option is refused, or a model lacks its key.
        """
        return run_in_new_loop(self.arun(question, **options))

    async def arun(
        self,
        question: str,
        *,
        listen: Callable[[Event], None] | None = None,
        started: Callable[[Real], None] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Take a question from start to ending in the running event loop.

        A cancellation by the caller stops the run and is raised again once it has ended.

        Args:
            question: The question.
            listen: Is told of each line of the log.
            started: Is given the world of the run, whose `stop` may be called from any thread.
            **options: `seed`, `history`, `deps` and `deadline_s`, see RunOptions.

        Raises:
            InputError: The question, the history or an option is refused, or a model lacks its key.
        """
        spec = self.spec(question, run_id=f"run-{random_hex()}", key=random_key(), **options)
        head = head_of(spec, clock="system", began=wall_ns())
        with self.workspace(deps=options.get("deps")) as workspace:
            world = Real(workspace, leaves=False, listens=False, approve=self.approve)
            if started is not None:
                started(world)
            try:
                made = await make_run(spec, head, world, listen=listen)
            finally:
                await world.close()
        world.raise_if_cancelled()
        return self.result_of(made)

    def stream(self, question: str, **options: Unpack[RunOptions]) -> AsyncGenerator[Event | Piece, None]:
        """Run on a question, and yield each line of the log as it is written, and pieces of text while they come.

        The last is a RunEnded. Leaving the loop early stops the run.

        Args:
            question: The question.
            **options: `seed`, `history`, `deps` and `deadline_s`, see RunOptions.
        """

        def begin(tell: Tell) -> Coroutine[Any, Any, object]:
            def started(world: Real) -> None:
                world.on_piece = tell

            return self.arun(question, listen=tell, started=started, **options)

        return streamed(begin)

    def result_of(self, made: RunMade) -> RunResult:
        """Return what a run came to, with the answer as one of the agent that answered last."""
        events, ended = made.journal.events, made.ended
        head = events[0]
        assert isinstance(head, RunStarted)
        about = reached(ended, events, self.type_of_answer(events, self.answer_type))
        messages = with_all_results(made.messages)
        return RunResult(run_id=head.run_id, steps=len(steps_of(events)), messages=messages, **about)

    def type_of_answer(self, events: Iterable[Event], before: AnswerType | None) -> AnswerType | None:
        """Return the type of what is answered after some steps, given their lines and the type before them."""
        agents = {tool.name: tool.agent for tool in self.all_tools}
        steps = steps_of(event for event in events if not place_of(event.at))
        for call in (call for step in steps for call in step.calls if call.handed is not None):
            agent = agents.get(call.call.name)  # a log that goes on may be of another agent
            before = agent.answer_type if isinstance(agent, Agent) else None
        return before


def live_redactor(policy: Policy, key: bytes) -> Redactor:
    """Return the redactor of a live run, which knows the values of the environment that the policy names."""
    return policy.redactor({name: value for name in policy.secret_names if (value := variable(name))}, key)


def _refuse_wrong(given: Mapping[str, Any]) -> None:
    """Refuse arguments that no agent can be made with. Raises InputError."""
    llm, tools, hooks, plan, root = (given[name] for name in ("llm", "tools", "hooks", "plan", "root"))
    approve, window, retries = given["approve"], given["window"], given["output_retries"]
    folders = [(name, given[name] or {}) for name in ("mounts", "hosts")]
    listed = [hooks] if isinstance(hooks, Hooks) else hooks
    are_hooks = isinstance(listed, Sequence) and all(isinstance(it, Hooks) for it in listed)
    asked = [getattr(it, point) for it in listed for point in HOOKS] if are_hooks else []
    for what, is_right, remedy in (
        ("llm", is_model(llm) or isinstance(llm, Fallback), "give a function, or PROVIDER:MODEL"),
        ("tools", isinstance(tools, Iterable) and not isinstance(tools, str), "give a list of tools"),
        ("policy", isinstance(given["policy"], Policy), "give Policy.load(FILE) or Policy.from_dict(DATA)"),
        ("plan", plan is None or isinstance(plan, Policy), "give a Policy"),
        ("hooks", are_hooks and all(it is None or callable(it) for it in asked), "give Hooks of functions"),
        ("approve", approve is None or callable(approve), "give a function"),
        ("window", window is None or isinstance(window, WindowLimits), "give WindowLimits(max_bytes=1000)"),
        *((n, isinstance(at, Mapping) and all(at.values()), "map names to folders") for n, at in folders),
        ("output_retries", type(retries) is int and retries >= 0, "give a whole number from 0 on"),
        ("root", isinstance(root, str | Path) and Path(root).is_dir(), "give a folder that is there"),
    ):
        if not is_right:
            raise InputError(f"the agent's {what} cannot be used", remedy=remedy)


def _label(name: str, folder: Path | None) -> str:
    """Return what records call a folder: its path, or its name where that would tell of this machine."""
    return name if folder is None or folder.is_absolute() else clean_text(folder.as_posix())
