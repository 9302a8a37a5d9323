"""The policy and the gate that decides by it. Pure, apart from reading policy files.

The room `per_tool` holds the rules of single tools.

- `policy`: the policy as validated data
- `loading`: read and merge policy files
- `built_in`: the policy of an agent that is given none
- `consistency`: contradictions and dead entries that a JSON Schema cannot see
- `own_patterns`: which patterns of secrets a policy may describe
- `requests`: a proposed call as the gate sees it
- `call_cost`: the ceiling on the work of one decision
- `gate`: decide one call: allow, deny or escalate, with rule and reason
- `resource_rules`: the rules on URLs and paths
- `credentials`: which hosts get a credential, and a tool that sets the same header
- `signers`: answers of people that count only with a signature
- `placeholder_rule`: writes that hold placeholders, and verdicts on hidden values
- `usage`: what a run has used so far, for budgets and cycle detection
- `explain`: the verdict of every rule on one call
"""
