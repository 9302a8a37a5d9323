"""Policy changes presented like a plan.

- `plan`: what a policy change does, alone and to recorded runs
- `text`: the plan for a terminal
- `markdown`: the plan as a pull request comment
- `sources`: policy files from the working tree or from git
"""
