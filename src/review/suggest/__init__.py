"""Policies drafted from recorded runs.

- `suggest`: the tightest policy that a run passes under
- `requirements`: what the calls of a run need of a policy
- `required_limits`: the budgets that a run needs
- `policy_writer`: a policy as YAML text with comments
- `text_edits`: edits in the text of a policy file
"""
