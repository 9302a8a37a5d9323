"""Tasks: one YAML file per scenario.

- `task`: read a task file and turn it into an agent and a run's configuration
- `faults`: inject the faults that a task describes
- `expect`: compare a run with what its task expects
"""
