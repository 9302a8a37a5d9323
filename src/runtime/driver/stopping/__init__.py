"""What ends a run before its loop does.

- `scopes`: cancellation as a tree
- `interrupts`: Ctrl-C and SIGTERM while a run is under way
- `script_end`: ends a run whose script is wrong after an effect
- `scripted_stop`: cancels a scripted run at a stated time
- `processes`: the processes that a run started
"""
