"""Agents in code that tasks name.

- `agent`: load the agent that a task names
- `tools`: the tools of agents in code
- `project_modules`: find the source files of the project that a module needs
"""
