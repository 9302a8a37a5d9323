"""What would allow a refused call.

- `explain_denial`: what the minimal edit that allows a refused call allows besides
- `minimal_edit`: the minimal policy edit that allows a call
- `edits`: policy edits as data, and how they are applied
"""
