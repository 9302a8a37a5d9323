"""Classes made by `light_dataclasses` behave as those of `dataclasses` do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph import light_dataclasses
from tachograph.runtime.core.effects import Decision, DecisionKind, Outcome, Wait
from tachograph.runtime.tools.contract import Tool

BOTH = pytest.mark.parametrize("module", [dataclasses, light_dataclasses], ids=["dataclasses", "light"])
ON_BOTH: Any = [dataclasses, light_dataclasses]
OPTIONS = [{}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}]


def point(module: ModuleType, **options: bool) -> Any:
    """Return a class with every kind of field, made by either module."""

    @module.dataclass(**options)
    class Point:
        """A point."""

        x: int
        hidden: str = module.field(repr=False)
        ignored: Any = module.field(default=3, compare=False)
        y: int | None = None
        items: list[int] = module.field(default_factory=list)
        total: int = module.field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + (self.y or 0))

        @property
        def double(self) -> int:
            """Twice x."""
            return self.x * 2

    return Point


def outcome(do: Callable[[], Any]) -> Any:
    """Return what a call returns, or the type of what it raises."""
    try:
        return do()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error)


VALUES = st.builds(
    lambda *values: dict(zip(("x", "hidden", "ignored", "y", "items"), values, strict=True)),
    st.integers(0, 2),
    st.sampled_from(["a", "b"]),
    st.integers(0, 1),
    st.none() | st.integers(0, 1),
    st.lists(st.integers(0, 1), max_size=1),
)


@pytest.mark.parametrize("options", OPTIONS)
@given(one=VALUES, other=VALUES)
def test_values_compare_and_print_alike(options: dict[str, bool], one: Any, other: Any) -> None:
    seen = []
    for module in ON_BOTH:
        cls = point(module, **options)
        a, b = cls(**one), cls(**other)
        seen.append(
            (
                a == b,
                a != b,
                repr(a).rpartition(".")[2],
                module.replace(a, x=5).total,
                dataclasses.asdict(a),
                [getattr(copy.copy(a), name) for name in ("x", "hidden", "ignored", "y", "items", "total")],
                copy.deepcopy(a) == a,
                a.double,
                a == point(module, **options)(**one),  # of another class of the same name
            )
        )
    assert seen[0] == seen[1]


def looks(module: Any, options: dict[str, bool]) -> list[Any]:
    """Return what can be seen of the class and its instances."""
    cls = point(module, **options)
    a = cls(1, "h", y=2)
    return [
        [(f.name, f.type, f.init, f.repr, f.compare, f.default) for f in dataclasses.fields(cls)],
        [f.default_factory for f in dataclasses.fields(a)][4],
        str(inspect.signature(cls)),
        cls.__match_args__,
        cls.__doc__,
        cls.__init__.__qualname__.rpartition("<locals>")[2],
        dataclasses.is_dataclass(a),
        cls.__dataclass_params__.frozen,
        hasattr(a, "__dict__"),
        getattr(cls, "__slots__", None),
        outcome(lambda: hash(cls(1, "h", items=()))) is TypeError,
        outcome(lambda: setattr(a, "x", 4)),
        outcome(lambda: delattr(a, "y")),
        outcome(lambda: cls(1)),
        outcome(lambda: cls(1, "h", nothing=2)),
        outcome(lambda: cls(1, "h", total=2)),
        outcome(lambda: module.replace(a, total=2)),
        outcome(lambda: module.replace(a, nothing=2)),
        outcome(lambda: dataclasses.replace(a, hidden="other").hidden),
        cls(1, "h").items is cls(1, "h").items,
    ]


@pytest.mark.parametrize("options", OPTIONS)
def test_classes_look_alike(options: dict[str, bool]) -> None:
    assert looks(dataclasses, options) == looks(light_dataclasses, options)


@pytest.mark.parametrize("slots", [False, True])
def test_a_frozen_instance_gets_no_new_attribute(slots: bool) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="assign to field 'unknown'"):
        point(light_dataclasses, frozen=True, slots=slots)(1, "h").unknown = 1


def test_equal_values_have_one_hash() -> None:
    cls = point(light_dataclasses, frozen=True, slots=True)
    assert hash(cls(1, "h", 3, None, ())) == hash(cls(1, "h", 4, None, ()))
    assert {cls(1, "h", 3, None, ()): "a"}[cls(1, "h", 9, None, ())] == "a"


@BOTH
def test_a_class_may_keep_methods_of_its_own(module: Any) -> None:
    @module.dataclass(frozen=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        @cached_property
        def late(self) -> int:
            return self.a + 1

    assert (repr(Own(1)), Own(1) == Own(2), hash(Own(1)), Own(3).late) == ("mine", True, 7, 4)


@BOTH
def test_a_mutable_default_is_refused(module: Any) -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @module.dataclass
        class Shared:
            items: list[int] = []  # noqa: RUF012 - what is refused


def test_what_is_not_supported_is_refused() -> None:
    with pytest.raises(TypeError, match="ClassVar"):

        @light_dataclasses.dataclass
        class Shared:
            count: ClassVar[int] = 0

    with pytest.raises(TypeError, match="inherits fields"):

        @light_dataclasses.dataclass
        class Longer(Wait):
            more: int = 0


def test_values_of_a_run_can_be_pickled_matched_and_described() -> None:
    decision = Decision(DecisionKind.ALLOW, "approval", "because", "policy.yaml:1", {"n": 1})  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(decision)) == decision
    assert pickle.loads(pickle.dumps(Outcome(invalid="x"))) == Outcome(invalid="x")
    match Wait(1, None, 2, 30):
        case Wait(step, None, attempt, ms):
            assert (step, attempt, ms) == (1, 2, 30)
        case _:
            pytest.fail("not matched")
    assert [f.name for f in dataclasses.fields(Tool) if not f.init] == ["resources", "schema_texts"]


def test_a_real_dataclass_may_extend_one() -> None:
    @dataclasses.dataclass(frozen=True)
    class Longer(Wait):
        more: int = 5

    assert dataclasses.asdict(Longer(1, None, 2, 30)) == {
        "step": 1,
        "index": None,
        "attempt": 2,
        "ms": 30,
        "more": 5,
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        Longer(1, None, 2, 30).ms = 3  # type: ignore[misc]


@BOTH
def test_a_class_that_inherits_makes_its_instances_by_the_inherited_init(module: Any) -> None:
    base = point(module, frozen=True)
    below = type("Below", (base,), {})
    assert below(1, "h", y=2).y == 2
    assert below.__init__ is base.__init__


@BOTH
def test_an_init_that_was_replaced_stays(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = point(module)
    monkeypatch.setattr(cls, "__init__", lambda self: setattr(self, "x", 7))
    assert cls().x == 7
