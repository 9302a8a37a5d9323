"""The four files of a run.

- `manifest`: `manifest.json`: inputs and outputs of a run with their digests
- `package_digest`: the sources of this package that shape a run, and their digest
- `commit`: the commit that holds the very code that makes runs
- `claims`: the volatile keys of a manifest, and the shape that each must have
- `owned`: `blobs/` and `children/` of a run, compared with its manifest
- `report`: `run_report.md`, rendered from the ledger
- `hook_words`: what a hook answered, in words
- `call_words`: the arguments of a call, as compact JSON, and which calls ran together
- `tally`: the facts of a run that a task may expect
- `json_diff`: differences of two JSON values, and their classes
- `accepted`: `runs/ACCEPTED.jsonl`: accepted drift with its reasons
- `writer`: ledger lines to ledger, trace and report
- `rebuild`: read a recorded run and derive its files again from the ledger
- `v1`: the files of a run of the earlier schema, where they are not as today
- `rule_places`: the lines of rules that a record names, in the files of today
- `way_on`: how an unfinished run is resumed, by the command or from code
- `folder`: replace a run's folder as a whole, under a lock
"""
