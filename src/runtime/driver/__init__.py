"""Performs the loop's effects and stamps them.

The room `events` holds those who watch a run, `stopping` what ends one before its loop does.

- `driver`: drives the loop: has each effect performed, one after another; with and without an event loop
- `stepper`: takes the loop from one effect to the next, stamps, and hands on each finished step
- `effect_sequence`: stamps effects that are performed one after another
- `groups`: performs a group of calls, and puts together what came of them
- `async_groups`: performs a group of calls at the same time, in an event loop
- `live_executor`: performs effects for real
- `foreign_calls`: calls models and tools: here, or beside an event loop
- `disk_work`: waits for the disk: here, or beside an event loop
- `hook_calls`: asks a hook for real
- `person_calls`: asks a person for real
- `ports`: protocols and callables shared by driver, journal and evidence
- `file_approvals`: questions to a person, asked and answered by files
- `answer_folder`: the folder of these files: a lock, and marks of questions that are closed
"""
