"""The four files of a run.

The room `claims` holds what a manifest claims of machine and code, `words` parts of a record in words.

- `manifest`: `manifest.json`: inputs and outputs of a run with their digests
- `owned`: `blobs/` and `children/` of a run, compared with its manifest
- `report`: `run_report.md`, rendered from the ledger
- `tally`: the facts of a run that a task may expect
- `json_diff`: differences of two JSON values, and their classes
- `accepted`: `runs/ACCEPTED.jsonl`: accepted drift with its reasons
- `writer`: ledger lines to ledger, trace and report
- `rebuild`: read a recorded run and derive its files again from the ledger
- `v1`: the files of a run of the earlier schema, where they are not as today
- `git_objects`: read what git keeps, by a git that runs nothing of the repository
- `folder`: replace a run's folder as a whole, under a lock
"""
