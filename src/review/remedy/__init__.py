"""What would allow a refused call.

- `explain_denial`: why a call was refused and what the smallest edit opens
- `minimal_edit`: the smallest policy edit that allows a call
- `edits`: policy edits as data
"""
