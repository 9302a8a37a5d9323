"""Recording runs.

- `record`: record a run: four files, whole or not at all
- `resume`: resume a run from its journal
- `recorded`: open a recorded run to make it again
- `index`: `runs/INDEX.json`
"""
