"""Dataclasses that are quick to make: the part of `dataclasses` that a run needs, with the same behaviour.

`dataclasses` compiles six functions for a frozen class, and its import loads `inspect`. For the classes of a run that
is a fifth of what a command costs. Here `__init__` alone is compiled, when it is first asked for; the other methods are
shared code over the fields. The classes are dataclasses to everyone else: `dataclasses.fields`, `replace`, `asdict` and
`match` work on them.

Not supported: other options, `ClassVar`, `InitVar`, inherited fields, and values that contain themselves in `repr`.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # to a type checker they are the same
    from dataclasses import dataclass, field, replace

    __all__ = ["dataclass", "field", "replace"]
else:

    class _Missing:
        """Stands for a default that is not given."""

        def __repr__(self) -> str:
            return "<factory>"  # what signatures show of a field with one, as those of `dataclasses` do

    _MISSING = _Missing()

    class _Field:
        """What a class says of one field; `name` and `type` are set when the class is made."""

        __slots__ = ("compare", "default", "default_factory", "init", "name", "repr", "type")

        def __init__(self, default, default_factory, init, repr, compare) -> None:
            self.default = default
            self.default_factory = default_factory
            self.init = init
            self.repr = repr
            self.compare = compare

    def field(*, default=_MISSING, default_factory=_MISSING, init=True, repr=True, compare=True) -> Any:
        """Describe a field, as `dataclasses.field` does."""
        return _Field(default, default_factory, init, repr, compare)

    def dataclass(cls=None, /, *, frozen: bool = False, slots: bool = False) -> Any:
        """Make a class a dataclass, as `dataclasses.dataclass` does; without one, return a decorator that does."""
        return _make(cls, frozen, slots) if cls is not None else lambda cls: _make(cls, frozen, slots)

    def replace(instance, /, **changes) -> Any:
        """Return a copy of an instance with other values, as `dataclasses.replace` does."""
        for one in type(instance).__light_fields__:
            if not one.init:
                if one.name in changes:
                    raise ValueError(f"field {one.name} is declared with init=False")
            elif one.name not in changes:
                changes[one.name] = getattr(instance, one.name)
        return type(instance)(**changes)

    def _make(cls: type, frozen: bool, slots: bool) -> type:
        if hasattr(cls, "__dataclass_fields__"):
            raise TypeError(f"{cls.__qualname__} inherits fields, which is not supported")
        fields = [_field_of(cls, name, kind) for name, kind in cls.__annotations__.items()]
        cls = _with_slots(cls, fields) if slots else _with_defaults(cls, fields)
        cls.__light_fields__ = tuple(fields)
        cls.__dataclass_fields__ = _FromTwin("__dataclass_fields__", cls, frozen)
        cls.__dataclass_params__ = _FromTwin("__dataclass_params__", cls, frozen)
        cls.__match_args__ = tuple(one.name for one in fields if one.init)
        cls.__init__ = _Init(cls, fields, frozen, slots)
        compared = tuple(one.name for one in fields if one.compare)
        methods = [_eq(compared), __repr__, __replace__]
        if frozen:
            methods += [_hash(compared), *_frozen(cls), *((__getstate__, __setstate__) if slots else ())]
        for method in methods:
            if method.__name__ not in cls.__dict__ or cls.__dict__[method.__name__] is None:
                setattr(cls, method.__name__, method)
        if "__hash__" not in cls.__dict__:  # equal while they are, but they may change
            cls.__hash__ = None
        return cls

    def _field_of(cls: type, name: str, kind: Any) -> _Field:
        if "ClassVar[" in str(kind) or "InitVar[" in str(kind):
            raise TypeError(f"{cls.__qualname__}.{name}: ClassVar and InitVar are not supported")
        given = cls.__dict__.get(name, _MISSING)
        one = given if isinstance(given, _Field) else _Field(given, _MISSING, True, True, True)
        if type(one.default).__hash__ is None:
            raise ValueError(f"{cls.__qualname__}.{name}: use default_factory for a mutable default")
        one.name, one.type = name, kind
        return one

    def _with_slots(cls: type, fields: list[_Field]) -> type:
        """Return the class made again with slots, which a class can only get when it is made."""
        names = tuple(one.name for one in fields)
        members = {
            name: value
            for name, value in cls.__dict__.items()
            if name not in names and name not in ("__dict__", "__weakref__")
        }
        made = type(cls)(cls.__name__, cls.__bases__, {**members, "__slots__": names})
        made.__qualname__ = cls.__qualname__
        return made

    def _with_defaults(cls: type, fields: list[_Field]) -> type:
        for one in fields:
            if one.default is not _MISSING:
                setattr(cls, one.name, one.default)
            elif one.name in cls.__dict__:
                delattr(cls, one.name)
        return cls

    class _Init:
        """Stands for the `__init__` of a class until it is first asked for: most runs make instances of few classes."""

        def __init__(self, cls: type, fields: list[_Field], frozen: bool, slots: bool) -> None:
            self.made_of = cls, fields, frozen, slots, sys.modules[cls.__module__].__dict__

        def __get__(self, instance, _owner=None) -> Any:
            cls = self.made_of[0]
            if cls.__dict__["__init__"] is self:  # not made meanwhile by another thread
                cls.__init__ = _init(*self.made_of)
            made = cls.__dict__["__init__"]
            return made if instance is None else made.__get__(instance)

    def _init(cls: type, fields: list[_Field], frozen: bool, slots: bool, space: dict[str, Any]) -> Any:
        names: dict[str, Any] = {"_new": _MISSING, "_set": object.__setattr__}
        parameters, lines = ["self"], []
        for one in fields:
            name = one.name
            has_factory, has_default = one.default_factory is not _MISSING, one.default is not _MISSING
            if has_factory:
                names[f"_make_{name}"] = one.default_factory
            if has_default:
                names[f"_default_{name}"] = one.default
            if one.init:
                parameters.append(
                    f"{name}=_new" if has_factory else f"{name}=_default_{name}" if has_default else name
                )
                value = f"_make_{name}() if {name} is _new else {name}" if has_factory else name
            elif has_factory:
                value = f"_make_{name}()"
            elif has_default and slots:
                value = f"_default_{name}"
            else:  # the class has the default, or `__post_init__` sets the value
                continue
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        body = "".join(f"  {line}\n" for line in lines or ["pass"])
        made: dict[str, Any] = {}
        text = (
            f"def make({', '.join(names)}):\n def __init__({', '.join(parameters)}):\n{body} return __init__"
        )
        exec(text, space, made)  # noqa: S102 - text of ours: names of fields
        init = made["make"](**names)
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        init.__annotations__ = {**{one.name: one.type for one in fields if one.init}, "return": None}
        return init

    def _values_of(names: tuple[str, ...]) -> Any:
        """Return a function from an instance to the tuple of those fields."""
        if len(names) > 1:
            return attrgetter(*names)
        return lambda instance: tuple(getattr(instance, name) for name in names)

    def _eq(names: tuple[str, ...]) -> Any:
        values = _values_of(names)

        def __eq__(self, other) -> Any:
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        return __eq__

    def _hash(names: tuple[str, ...]) -> Any:
        values = _values_of(names)

        def __hash__(self) -> int:
            return hash(values(self))

        return __hash__

    def _frozen(cls: type) -> tuple[Any, Any]:
        def refuse(name: str, what: str) -> NoReturn:
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {what} field {name!r}")

        names = tuple(one.name for one in cls.__light_fields__)

        def __setattr__(self, name, value) -> None:
            if type(self) is cls or name in names:
                refuse(name, "assign to")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self, name) -> None:
            if type(self) is cls or name in names:
                refuse(name, "delete")
            super(cls, self).__delattr__(name)

        return __setattr__, __delattr__

    def __repr__(self) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in self.__light_fields__ if one.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def __replace__(self, /, **changes) -> Any:
        return replace(self, **changes)

    def __getstate__(self) -> list[Any]:
        return [getattr(self, one.name) for one in self.__light_fields__]

    def __setstate__(self, state) -> None:
        for one, value in zip(self.__light_fields__, state, strict=True):
            object.__setattr__(self, one.name, value)

    class _FromTwin:
        """An attribute that `dataclasses` asks for; it is taken from a real dataclass of the same fields."""

        def __init__(self, name: str, cls: type, frozen: bool) -> None:
            self.name, self.cls, self.frozen = name, cls, frozen

        def __get__(self, _instance, _owner=None) -> Any:
            import dataclasses

            fields = []
            for one in self.cls.__light_fields__:
                names = ("default", "default_factory", "init", "repr", "compare")
                options = {name: getattr(one, name) for name in names}
                given = {name: value for name, value in options.items() if value is not _MISSING}
                fields.append((one.name, one.type, dataclasses.field(**given)))
            twin = dataclasses.make_dataclass(self.cls.__name__, fields, frozen=self.frozen)
            for name in ("__dataclass_fields__", "__dataclass_params__"):
                setattr(self.cls, name, getattr(twin, name))
            return getattr(twin, self.name)
