"""A governed agent runtime: a policy gate before every tool call, and a record that a stranger can re-derive."""
