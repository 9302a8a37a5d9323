"""Policies drafted from recorded runs.

- `suggest`: the tightest policy under which a run passes
- `requirements`: what a run requires of a policy
- `kept_rules`: rules on single tools that are taken over
- `required_limits`: the limits that a run requires
- `policy_writer`: a policy as YAML text with comments
- `text_edits`: edits in the text of a policy file
"""
