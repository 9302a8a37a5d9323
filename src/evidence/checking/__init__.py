"""Checking recorded runs.

- `check`: make runs again and compare byte for byte
- `compare`: compare two makings of a run
- `asked`: name the parts of model requests that moved
- `drift`: classify the first difference of two ledgers
- `cause`: find what made runs drift
- `verify`: check a record in itself, without running anything
- `hook_answers`: derive again what followed from the answers of hooks
- `proof`: which fields a check derives again, and which only the record states
- `cut_off`: the decisions of the step in which a run left its record
- `replay`: make a run again from its own record
- `secrets`: scan recorded files for keys
- `workers`: the same work on many runs, on all cores
"""
