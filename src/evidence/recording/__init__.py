"""Recording runs.

- `record`: record a run: four files, whole or not at all
- `recorder`: executes a run and writes its four files
- `sync_async`: record in the calling thread, or in an event loop
- `async_record`: record a run in an event loop
- `code_task`: record a run of a task that names an agent in code, and write that task
- `resume`: resume a run from its journal
- `unfinished`: what an unfinished run was begun with, asked before it is resumed
- `durability`: whether a run is kept in a journal, and what a signal does to it
- `external`: external calls are answered from a record where one stands
- `recorded`: open a recorded run to make it again
- `index`: `runs/INDEX.json`
"""
