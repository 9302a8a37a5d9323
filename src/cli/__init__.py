"""The command line.

- `main`: parse arguments, run a command, return its exit code
- `console`: progress output of a run
- `terminal_approval`: ask a person at the terminal about a call

`commands/` holds the commands, one module each.
"""
