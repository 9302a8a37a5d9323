"""The command line.

- `main`: run a command, return its exit code
- `parser`: find the command that is called, parse its arguments
- `supervise`: the parent process of a run that is kept in a journal
- `run_in_child`: write the record of such a run if its process vanishes
- `console`: colour, width, text that is safe to show
- `progress`: progress output of a run
- `run_result`: what is printed of a run that has ended
- `keys`: single keys and lines from a person at a terminal
- `terminal_approval`: ask a person at the terminal about a call

`commands/` holds the commands, one module each.
"""
