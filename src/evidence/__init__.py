"""Evidence: tasks, recording, checking, and questions about recorded runs.

Rooms, each importing only those after it: `queries` beside `sending`, `checking`, `recording`, `tasks`, `files`.
"""
