"""Evidence: tasks, recording, checking, and questions about recorded runs.

Rooms, each importing only those after it: `canary`, `queries` beside `sending`, `sealing`, `checking`, `recording`,
`tasks`, `files`.
"""
