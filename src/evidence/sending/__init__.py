"""Recorded runs sent or signed.

- `push`: the trace of a recorded run for an OTLP receiver
- `seal`: sign the digests of a run's files
"""
