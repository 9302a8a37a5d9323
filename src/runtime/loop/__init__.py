"""The agent loop: pure generators that yield effects and are sent outcomes.

- `loop`: the life of a run: steps until an ending
- `tool_calls`: the life of one tool call: decide, ask, execute, report
- `approvals`: a person is asked about a call
- `groups`: calls of one reply that are performed together
- `call_time`: the time at which a call is decided
- `hooks`: functions of the project that are asked, and what follows from their answers
- `attempts`: one effect, repeated until it succeeds or may not be repeated
- `retry`: which failures are transient, and how long to wait
- `state`: what a run is, and what it carries from step to step
- `step_builder`: the ledger line of the step under way
"""
