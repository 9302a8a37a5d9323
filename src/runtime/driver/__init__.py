"""Performs the loop's effects and stamps them.

- `driver`: drives the loop: has each effect performed, one after another; with and without an event loop
- `stepper`: takes the loop from one effect to the next, stamps, and hands on each finished step
- `groups`: performs a group of calls, and puts together what came of them
- `async_groups`: performs a group of calls at the same time, in an event loop
- `live_executor`: performs effects for real
- `foreign_calls`: calls models and tools: here, or beside an event loop
- `disk_work`: waits for the disk: here, or beside an event loop
- `scopes`: cancellation as a tree
- `hook_calls`: asks a hook for real
- `interrupts`: Ctrl-C and SIGTERM while a run is under way
- `script_end`: ends a run whose script is wrong after an effect
- `scripted_stop`: cancels a scripted run at a stated time
- `processes`: the processes that a run started
- `ports`: protocols and callables shared by driver, journal and evidence
- `text_pieces`: pieces of a reply's text, on their way to a listener
- `event_stream`: the events of a run as an iterator
- `listeners`: callables that watch a run and cannot disturb it
- `file_approvals`: questions to a person, asked and answered by files
"""
