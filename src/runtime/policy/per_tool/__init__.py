"""The rules of a policy on single tools, `tools: {NAME: ...}`, which narrow what the other sections allow.

- `tool_rule_checks`: entries that cannot be read or decide nothing, and the same for named lists
- `argument_rules`: what the conditions on arguments say of a call
- `argument_schema`: those conditions as a JSON Schema
- `time_windows`: when a tool may be called
- `windows_of_the_week`: how these times are written
- `tool_limits`: how often a tool may be called in a run
- `principals`: which tools are denied to whom a run acts for
- `request_rules`: what the rules on headers and bodies say of a request
- `tool_reach`: the URLs, methods and mounts that a tool may reach
- `tool_reach_checks`: entries for those that cannot be read or decide nothing
"""
