"""Recording runs.

- `record`: record a run: four files, whole or not at all
- `resume`: resume a run from its journal
- `durability`: whether a run is kept in a journal, and what a signal does to it
- `external`: external calls are answered from a record where one stands
- `recorded`: open a recorded run to make it again
- `index`: `runs/INDEX.json`
"""
