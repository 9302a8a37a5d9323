"""The differences of two executions of a run.

- `compare`: compare two executions: inputs, ledgers, files
- `exposure`: what a change lets into records that was kept out of them
- `found_cause`: what is behind the drift of one run, and how sure that is
- `drift`: classify the first difference of two ledgers
- `requests`: name the parts of model requests that differ
- `cause`: find what made runs drift
"""
