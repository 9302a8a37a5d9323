"""The reviewer's desk: policy changes, drift, suggestions, policy tests.

Rooms: `suggest`, and below it `remedy`, `testing`, `plan`, then `compare`, then `queries` beside `drift`.
"""
