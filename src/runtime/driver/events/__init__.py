"""Those who watch a run while it goes on.

- `listeners`: callables that watch a run and cannot disturb it
- `event_stream`: the events of a run as an iterator
- `text_pieces`: pieces of a reply's text, on their way to a listener
"""
