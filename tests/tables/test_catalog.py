"""The catalog against the table of the contract."""

from __future__ import annotations

from itertools import product

import pytest

from tachograph.fail import catalog
from tachograph.fail.catalog import Denied, Ending, FailureMode, GaveUp, Happening, Rule, Stopped, StopReason

DENIAL, FAILURE = Ending.POLICY_DENIAL, Ending.FAILURE
# what happened: (mode, ending under terminate, ending under inform); None: the run goes on
EXPECTED: dict[Happening, tuple[str | None, str | None, str | None]] = {
    catalog.Answered(): (None, "final_answer", "final_answer"),
    catalog.Refused(): ("llm_refusal", "refused", "refused"),
    catalog.Succeeded(): (None, None, None),
    catalog.ResultLost(): (None, None, None),
    catalog.Succeeded(recovered=True): ("tool_call_failure", None, None),
    catalog.ResultLost(recovered=True): ("tool_call_failure", None, None),
    **{
        Denied(Rule(rule)): (None, DENIAL, None)
        for rule in (
            "tool_registry url_allowlist sandbox_path redact resources arguments tool_limits agents hook".split()
        )
    },
    Denied(Rule.ARG_SCHEMA): ("schema_mismatch", FAILURE, None),
    Denied(Rule.CYCLE_DETECTION): ("cycle_detection", DENIAL, DENIAL),
    Denied(Rule.GATE_ERROR): (None, DENIAL, DENIAL),
    catalog.StoppedByHook(): (None, DENIAL, DENIAL),
    Denied(Rule.LOOP_BUDGET): (None, "loop_budget", "loop_budget"),
    **{Denied(rule, repeated=True): (None, DENIAL, DENIAL) for rule in Rule},
    catalog.ApprovalRefused(): (None, "approval_refused", None),
    catalog.CallStopped(): (None, None, None),
    **{GaveUp(mode): (mode, FAILURE, FAILURE if mode == "llm_failure" else None) for mode in catalog.BROKEN},
    Stopped(StopReason.DEADLINE): ("timeout", FAILURE, FAILURE),
    Stopped(StopReason.CANCELLED): ("cancelled", "cancelled", "cancelled"),
    Stopped(StopReason.INTERRUPTED): ("interrupted", "cancelled", "cancelled"),
}
BROKEN_MODES = {
    "retry_exhaustion", "timeout", "catalogued_unhandled", "llm_failure", "llm_invalid_output",
    "tool_output_invalid", "output_mismatch",
}  # fmt: skip


def test_the_table_is_the_contracts() -> None:
    found = {}
    for happening in catalog.happenings():
        terminate, inform = (catalog.classify(happening, word, word) for word in ("terminate", "inform"))
        assert terminate.mode == inform.mode
        for on_deny, on_failure in (("terminate", "inform"), ("inform", "terminate")):
            own = on_deny if catalog.key_of(happening) == "on_deny" else on_failure
            wanted = inform if own == "inform" else terminate
            assert catalog.classify(happening, on_deny, on_failure) == wanted
        # being told never ends what terminating lets go on
        assert inform.ending is None or terminate.ending is not None
        found[happening] = (terminate.mode, terminate.ending, inform.ending)
    assert found == EXPECTED and catalog.BROKEN == BROKEN_MODES


def test_nothing_of_the_catalog_is_out_of_reach() -> None:
    ways = product(catalog.happenings(), ("terminate", "inform"))
    found = [catalog.classify(happening, how) for happening, how in ways]
    assert {each.mode for each in found} == {None, *FailureMode} and set(catalog.MODES) == set(FailureMode)
    assert {each.ending for each in found} == {None, *Ending} and set(catalog.ENDINGS) == set(Ending)
    denials = {it.rule for it in catalog.happenings() if isinstance(it, Denied) and not it.repeated}
    assert denials == {*Rule} - {"approval"}


@pytest.mark.parametrize("happening", [Denied(Rule.APPROVAL), GaveUp(FailureMode.SCHEMA_MISMATCH)], ids=repr)
def test_what_nobody_foresaw_is_a_mistake_and_no_ending(happening: Happening) -> None:
    with pytest.raises(KeyError):
        catalog.classify(happening, "terminate")
