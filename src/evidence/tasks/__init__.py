"""Tasks: one YAML file per scenario.

The room `code` holds what tasks need that name an agent in code.

- `task`: read a task file and turn it into an agent and a run's configuration
- `script_calls`: calls of a script that name no tool of the task
- `unreadable`: the error for a task file that cannot be read
- `named_files`: the files and folders that a task names
- `openings`: what a task's run opens with, and values given beside the task
- `values`: check what the schema of tasks cannot express
- `place`: what the task of a place below `runs/` demands of the run there
- `faults`: inject the faults that a task describes
- `expect`: compare a run with what its task expects
"""
