"""Misbehave in the way that is asked for."""

DESCRIPTION = "Misbehave."
INPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["how"],
    "properties": {"how": {"type": "string"}},
}
OUTPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["value"],
    "properties": {"value": {"type": "integer"}, "by_name": {"additionalProperties": {"type": "integer"}}},
}
EFFECT = "pure"
IDEMPOTENT = True


def _deep():
    value = []
    for _ in range(1000):
        value = [value]
    return value


def _swallowed(io):
    try:
        io.read("box/a.txt")
    except PermissionError:
        return {"value": 1}


HOW = {
    "nan": lambda io: {"value": float("nan")},
    "set": lambda io: {"value": {1, 2}},
    "bytes": lambda io: {"value": b"x"},
    "surrogate": lambda io: {"value": "\ud800"},
    "keys": lambda io: {1: 2},
    "deep": lambda io: {"value": _deep()},
    "huge": lambda io: {"value": 2**70},
    "list": lambda io: [1],
    "none": lambda io: None,
    "object": lambda io: type("Nameless", (type,), {"__name__": None})("Odd", (), {})(),
    "schema": lambda io: {"value": "text"},
    "extra": lambda io: {"value": 1, "more": 2},
    "float": lambda io: {"value": 7.0},
    "key": lambda io: {"value": 1, "by_name": {"someone@mail.test": "text"}},
    "undeclared": lambda io: {"value": len(io.read("box/a.txt"))},
    "undeclared and caught": _swallowed,
    "secret words": lambda io: int("the text of an exception"),
}


def run(args, io):
    how = args["how"]
    if how in HOW:
        return HOW[how](io)
    if how == "named":
        raise type("ghp_" + "a1B2" * 9, (Exception,), {})
    raise {"exit": SystemExit, "stop": StopIteration, "generator": GeneratorExit, "memory": MemoryError}[how]
