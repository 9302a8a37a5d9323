"""The words that loop, gate and driver share.

- `effects`: what the loop yields and what it is sent: effects, outcomes, events, positions
- `lines`: the lines of a ledger as types
- `outcome_codec`: outcomes as plain data and back, for journal and replay
- `redaction`: secrets replaced by typed placeholders as they enter a run
- `redacted_pieces`: the same for a text that comes in pieces
- `secret_kinds`: kinds of secrets with a fixed prefix or context
- `secret_search`: which of them a text may hold, and the patterns that find them
- `known_secrets`: secrets known by their text: keys of opened models, environment variables
- `branch_numbers`: numbers of secrets that calls which run together are the first to meet
- `branches`: which call of a group is being performed
- `stopping`: what ends a call that the run waits for
- `clock`: the virtual and the system clock; the only place that reads the time
- `local_time`: what a wall clock shows in a zone
- `run_ids`: random run ids; the only place that uses randomness
"""
