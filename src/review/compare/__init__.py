"""Two policies compared by what they allow.

- `policy_compare`: compare two policies over a set of tools
- `widenings`: what one policy allows and another refuses
- `tool_reach`: URLs and mounts that rules on single tools allow under one policy
- `conditions`: arguments that one policy's conditions deny and another policy lets pass
- `by_principal`: policies as one principal meets them
- `time_windows`: times at which only one of two policies, or both, let a tool be called
- `attempt_limits`: where only one of two policies leaves room for another attempt
- `grants`: the URLs and mounts that policies allow
- `reachability`: what a tool can be called with and reach under a policy
- `schema_algebra`: sets of arguments: intersect, subtract, tell whether one is empty
- `schema_instances`: values that a schema admits
- `pattern_samples`: short texts that match a pattern
- `inert_settings`: changed settings that decide no call
"""
