"""Whatever is changed in a live run's record, or in what it rests on, is named at its place."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tachograph import LLMInput, LLMOutput, ToolCall
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tests.evidence.project import edit_lines, replaced
from tests.providers import sessions
from tests.providers.sessions import Project

project = sessions.project

USAGE = {"input_tokens": 11, "output_tokens": 7}


def _call(name: str, **arguments: Any) -> LLMOutput:
    calls = [ToolCall(name, arguments)]
    return LLMOutput("so", calls, usage=USAGE, model="m-1", finish_reason="tool_calls")


class Live:
    """A model that no script stands behind."""

    identity: ClassVar = {
        "execution_path": "live",
        "provider": "openai",
        "name": "some-model",
        "script_digest": None,
        "options": {"temperature": 0, "stop": ["a b"]},
    }

    def __init__(self) -> None:
        self.replies = [
            _call("read", path="corpus/op-a4.md"),
            _call("write", path="sandbox/note.md", content="noted"),
            _call("fetch", url="https://corpus.test/op-a1.md"),
            LLMOutput(final_answer="done", finish_reason="stop", usage=USAGE, model="m-1"),
        ]

    def __call__(self, asked: LLMInput) -> LLMOutput:
        return self.replies.pop(0)


@pytest.fixture
def recorded(project: Project) -> Project:
    agent, setting = build(load_task(project.task, root=project.folder), model=Live())
    record_run(agent, setting, project.place())
    project.proven()
    return project


Line = dict[str, Any]

# a careful change, the chain made right again: (what, what a replay says, what a check says where it differs)
RECORD: dict[str, tuple[Any, str, str | None]] = {
    "a reply's text": (
        lambda lines: lines[1]["llm_output"].update(text="sp"),
        "input differs at step 2",
        None,
    ),
    "an answer": (
        lambda lines: lines[4]["llm_output"].update(final_answer="dome"),
        "state.jsonl line 6: first difference: line 6 /final_answer: done -> dome [ANSWER]",
        None,
    ),
    "the end's answer": (
        lambda lines: lines[5].update(final_answer="dome"),
        "state.jsonl line 6: first difference: line 6 /final_answer: dome -> done [ANSWER]",
        None,
    ),
    "a call's arguments": (
        lambda lines: lines[1]["intended_tool_calls"][0]["arguments"].update(path="corpus/op-a5.md"),
        "input differs at step 2",
        "step 1 /tool_results/0/result/path: corpus/op-a4.md -> corpus/op-a5.md [EFFECT]",
    ),
    "a call's tool": (
        lambda lines: lines[2]["intended_tool_calls"][0].update(name="erase"),
        "a recorded outcome was not asked for: step 2",
        None,
    ),
    "how a reply ended": (
        lambda lines: lines[2]["llm_output"].update(finish_reason="other"),
        "trace.json line 8",
        None,
    ),
    "a reply's tokens": (
        lambda lines: lines[2]["llm_output"].update(usage=[12, 7]),
        "step 2 /usage/input_tokens: 11 -> 12 [BUDGET]",
        None,
    ),
    "a result": (
        lambda lines: lines[3]["tool_results"][0]["result"].update(text="other"),
        "input differs at step 4",
        "step 3 /tool_results/0/result/text: other -> ",
    ),
    "a decision": (
        lambda lines: lines[2]["policy_decisions"][0].update(rule_id="tool_registry"),
        "step 2 /policy_decisions/0/rule_id: tool_registry -> sandbox_path [VERDICT]",
        None,
    ),
    "the digest of a prompt": (
        lambda lines: lines[3]["llm_input"].update(digest="0" * 64),
        "input differs at step 3: the messages differ",
        None,
    ),
    "the question": (
        lambda lines: lines[0].update(question=lines[0]["question"] + "?"),
        "line 1 /question: ",
        None,
    ),
    "a stamp": (
        lambda lines: lines[2]["stamps"]["m.1"].__setitem__(1, lines[2]["stamps"]["m.1"][1] - 1),
        "trace.json line",
        None,
    ),
}


@pytest.mark.parametrize("what", RECORD)
def test_a_careful_change_of_the_record(recorded: Project, what: str) -> None:
    change, said, checked = RECORD[what]
    edit_lines(recorded.place(), change, chain=True)
    for verb, text in (("replay", said), ("check", checked or said)):
        found = recorded(verb, "made/live/v1")
        assert found.code == 1 and text in found.out, found.out
    assert recorded("verify", "made/live/v1").code == 1


@pytest.mark.parametrize("number", range(6))
def test_one_changed_byte_of_a_ledger_is_named_by_its_line(recorded: Project, number: int) -> None:
    state = recorded.place() / "state.jsonl"
    lines = state.read_bytes().split(b"\n")
    at = lines[number].index(b"canonical-v1") + 3
    lines[number] = lines[number][:at] + bytes([lines[number][at] ^ 1]) + lines[number][at + 1 :]
    state.write_bytes(b"\n".join(lines))
    for verb in ("replay", "check", "verify"):
        found = recorded(verb, "made/live/v1")
        assert found.code == 1
        # the line after it no longer follows; the last is held against what the run gives
        place = f"state.jsonl:{number + 2}: does not follow" if number < 5 else "state.jsonl"
        assert place in found.out, found.out


# a change of what the run rests on: (file, old, new, what is said of the place)
INPUTS = {
    "a remark in a tool": (
        "tools/read.py",
        "\nDESCRIPTION",
        "\n# a remark\nDESCRIPTION",
        "manifest.json: differs in inputs",
    ),
    "an address in the policy": (
        "policy/v1.yaml",
        "https://corpus.test/",
        "https://corpus.tess/",
        "step 3 /policy_decisions/0/decision: allow -> deny [VERDICT]",
    ),
    "a limit of the policy": (
        "policy/v1.yaml",
        "max_iterations: 10",
        "max_iterations: 11",
        "line 1 /policy/limits/max_iterations: 10 -> 11 [BUDGET]",
    ),
    "a limit of the policy that is met": (
        "policy/v1.yaml",
        "max_iterations: 10",
        "max_iterations: 3",
        "input differs at step 2: the number of messages differs",  # it is told that few are left
    ),
    "what the model is told of a tool": (
        "tools/read.py",
        "Read a text file",
        "Read a Text file",
        "what the model is asked with moved: tools: description of `read`",
    ),
    "a tool's schema": (
        "tools/read.py",
        '"maxLength": 512',
        '"maxLength": 513',
        "what the model is asked with moved: tools: input schema of `read`",
    ),
    "the question": (
        "tasks/canonical/v1.yaml",
        "fails on the road",
        "falls on the road",
        "input differs at step 1: the messages differ",
    ),
}


@pytest.mark.parametrize("what", INPUTS)
def test_a_change_of_what_it_rests_on(recorded: Project, what: str) -> None:
    file, old, new, said = INPUTS[what]
    replaced(recorded.folder / file, old, new)
    for verb in ("replay", "check"):
        found = recorded(verb, "made/live/v1")
        assert found.code == 1 and said in found.out, found.out
        assert f"input moved: {file} " in found.out


def test_a_remark_in_the_policy_changes_nothing(recorded: Project) -> None:
    replaced(recorded.folder / "policy/v1.yaml", "# The shipped", "# the shipped")
    assert [recorded(verb, "made/live/v1").code for verb in ("replay", "check")] == [0, 0]


def test_a_tool_that_works_otherwise_is_seen_by_a_check_alone(recorded: Project) -> None:
    replaced(recorded.folder / "tools/read.py", 'io.read(args["path"])}', 'io.read(args["path"]).upper()}')
    found = recorded("replay", "made/live/v1")
    assert "input differs" not in found.out and "input moved: tools/read.py" in found.out
    found = recorded("check", "made/live/v1")
    assert "input differs at step 2: the messages differ" in found.out
    assert "likely cause: tools/read.py moved" in found.out


def test_a_moved_document_is_the_likely_cause(recorded: Project) -> None:
    replaced(recorded.folder / "data/corpus/v1/op-a4.md", "20 minutes", "21 minutes")
    found = recorded("check", "made/live/v1")
    assert "likely cause: data/corpus/v1/op-a4.md moved" in found.out
    assert "input differs at step 2" in found.out


def test_what_the_model_was_not_told_is_accepted_without_it(recorded: Project) -> None:
    replaced(recorded.folder / "tools/read.py", "\nDESCRIPTION", "\n# a remark\nDESCRIPTION")
    found = recorded("check", "made/live/v1")
    assert found.out.splitlines()[-1] == 'accept it: tachograph accept made/live/v1 --reason "..."'


def test_the_way_forward_is_to_ask_the_model_again(recorded: Project) -> None:
    replaced(recorded.folder / "data/corpus/v1/op-a4.md", "20 minutes", "21 minutes")
    found = recorded("check", "made/live/v1")
    assert found.out.splitlines()[-1] == (
        "accept it: tachograph run tasks/canonical/v1.yaml --llm openai:some-model "
        """--llm-option 'stop=["a b"]' --llm-option temperature=0 --out made/live/v1 --replace"""
    )


def test_a_changed_record_has_no_command_that_accepts_it(recorded: Project) -> None:
    edit_lines(recorded.place(), lambda lines: lines[1]["llm_output"].update(text="sp"), chain=True)
    assert recorded("check", "made/live/v1").out.splitlines()[-1].startswith("nothing to accept")


def test_a_recording_of_an_older_schema_is_refused_with_a_way_forward(recorded: Project) -> None:
    edit_lines(recorded.place(), lambda lines: lines[0].update(schema="ledger/v0"), chain=True)
    for verb in ("replay", "check"):
        found = recorded(verb, "made/live/v1")
        assert (
            found.code == 1
            and "this version reads 'ledger/v2' and 'ledger/v1'" in found.out
            and "; " in found.out
        )
