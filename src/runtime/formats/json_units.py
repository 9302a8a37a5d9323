"""How much canonical JSON holds, counted in its text: decoding what is to be refused for its size costs too much."""

from __future__ import annotations


def count_units(text: str, enough: int) -> int:
    """Return how many values and names canonical JSON holds, or only its strings if they are more than `enough`.

    Arrays and objects count twice: making them also keeps the memory's collector busy.
    """
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    strings = text.count('"') // 2
    if strings > enough:
        return strings
    # an array or object that holds anything has one value more than commas
    outside = '"'.join(text.split('"')[::2])
    empty = outside.count("[]") + outside.count("{}")
    opened = outside.count("[") + outside.count("{")
    return 1 + outside.count(",") + opened - empty + outside.count(":") + opened
