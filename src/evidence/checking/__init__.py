"""Checking recorded runs.

The room `differences` compares two executions of a run, and finds what a difference comes of.

- `check`: make runs again and compare byte for byte
- `verify`: check a record in itself, without running anything
- `hook_answers`: derive again what followed from the answers of hooks
- `proof`: which fields a check derives again, and which only the record states
- `cut_off`: the decisions of the step in which a run left its record
- `replay`: make a run again from its own record
- `secrets`: scan recorded files for keys
- `workers`: the same work on many runs, on all cores
"""
