"""Tasks: one YAML file per scenario.

- `task`: read a task file and turn it into an agent and a run's configuration
- `named_files`: the files and folders that a task names
- `place`: what the task of a place below `runs/` demands of the run there
- `faults`: inject the faults that a task describes
- `expect`: compare a run with what its task expects
"""
