"""Tasks: one YAML file per scenario.

- `task`: read a task file and turn it into an agent and a run's configuration
- `script_calls`: calls of a script that name no tool of the task
- `unreadable`: the error for a task file that cannot be read
- `named_files`: the files and folders that a task names
- `openings`: what a task's run opens with, and values given beside the task
- `values`: check what the schema of tasks cannot express
- `code_agent`: load the agent that a task names in code
- `code_tools`: the tools of agents in code
- `project_modules`: find the source files of the project that a module needs
- `place`: what the task of a place below `runs/` demands of the run there
- `faults`: inject the faults that a task describes
- `expect`: compare a run with what its task expects
"""
