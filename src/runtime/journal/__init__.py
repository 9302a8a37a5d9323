"""The record under way: made durable before the next effect, and read back.

- `ledger`: `state.jsonl`: chained lines, one per step
- `ledger_file`: writes a ledger to a file of its own
- `ledger_v1`: lines of the earlier schema in the present shape
- `decided_calls`: the calls of a recorded step as gate and hooks decided them, with the arguments that hooks gave
- `requests`: what the model saw at each step, rebuilt from a ledger
- `journal`: write-ahead journal of a run under way
- `durable_run`: a run with a journal, and its resumption
- `recorded_effects`: answers to external calls from a record
- `journaled_executor`: performs the effects of such a run
- `recorded_clock`: the stamps of a record, given again
- `cassette`: outcomes read back from a record and given again by position
"""
