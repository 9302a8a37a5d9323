"""Policy tests and mutation coverage.

- `policy_tests`: read and run policy test files
- `answers`: a policy's answer to one test question
- `junit`: test results as JUnit XML
- `coverage`: mutate a policy and see what notices
- `mutations`: the single changes of a policy
- `tool_changes`: rules per tool and named lists with one change each
- `principal_changes`: the principals of a policy with one change each
- `url_changes`: entries of the URL allowlist that differ a little from one
- `probe_questions`: questions whose answer a change may alter
- `merge`: merge policy files in memory
- `observed`: tools, hosts, mounts, addresses, values and principals seen in tests and runs
"""
