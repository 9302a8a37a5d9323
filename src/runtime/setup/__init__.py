"""What a run is set up from, and what its first line says of that.

- `run_config`: what a single run adds to an agent, and the result of the run
- `opening`: what a run opens with: instructions, variables, earlier messages
- `output_types`: what an agent's `output_type` may be: a JSON Schema, or a class
- `run_line`: the first line of a run's ledger
- `run_inputs`: what a run rests on beside its ledger, with digests
"""
