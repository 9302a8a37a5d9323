"""The agent runtime: what runs an agent, decides on its calls and keeps what happened.

- `agent`: `Agent`: the loop with its driver, which is what a user imports
- `opening`: what a run opens with: instructions, variables, earlier messages
- `events`: what happened in a run, as typed events: from its ledger, and while it happens
- `execution`: performs one run of an agent: ledger, listeners and world around the loop
- `run_config`: what a single run adds to an agent, and the result of the run
- `output_types`: what an agent's `output_type` may be: a JSON Schema, or a class
- `run_inputs`: what a run rests on beside its ledger, with digests
- `run_line`: the first line of a run's ledger

Rooms, each importing only those after it: `journal` (the record under way), `driver` (performs effects), `loop`
(pure) beside `workspace` (files and hosts), `policy` (decides), `models` beside `tools`, `core` beside `resources`
and `schema`, `formats`.
"""
