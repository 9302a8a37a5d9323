"""The agent runtime: what runs an agent, decides on its calls and keeps what happened.

- `agent`: `Agent`: the loop with its driver, which is what a user imports
- `events`: what happened in a run, as typed events: from its ledger, and while it happens
- `execution`: performs one run of an agent: ledger, listeners and world around the loop

Rooms, each importing only those after it: `setup` (what a run is set up from), `journal` (the record under way),
`driver` (performs effects), `loop` (pure) beside `workspace` (files and hosts), `policy` (decides), `models` beside
`tools`, `core` beside `resources` and `schema`, `formats`.
"""
