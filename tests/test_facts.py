from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webhook
from tests.policies.decisions import answered
from webhook.errors import Unavailable
from webhook.facts import (
    NOT_READ,
    Facts,
    Key,
    KubeVirtKey,
    NamespaceKey,
    NotInMemory,
    ObjectKey,
    SchedulerKey,
    VmiKey,
    from_memory,
)
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES
from webhook.policies.common import required_facts
from webhook.policies.instancetypes.lookups import Lookups

KUBEVIRT: Key[Any] = KubeVirtKey()
HEALTH: Key[Any] = SchedulerKey("x")
DEMO: Key[Any] = NamespaceKey("a")
KEYS: list[Key[Any]] = [
    KubeVirtKey(),
    NamespaceKey("a"),
    NamespaceKey("a", uncached=True),
    SchedulerKey("a"),
    VmiKey("a", "b", "c"),
]


def test_unread_facts_are_asked_for_together() -> None:
    facts = Facts.of({DEMO: None})
    policy = facts.all(DEMO, HEALTH, KUBEVIRT, HEALTH)
    assert policy.send(None) == (HEALTH, KUBEVIRT)
    with pytest.raises(StopIteration) as returned:
        policy.send(["healthy", Unavailable("no")])
    assert returned.value.value == (None, "healthy", Unavailable("no"), "healthy")
    # What is known is needed no more.
    assert from_memory(facts.get(KUBEVIRT)) == Unavailable("no")
    from_memory(facts.prefetch(DEMO, KUBEVIRT))


def test_what_came_from_memory_is_known() -> None:
    facts = Facts(0.0, {NamespaceKey("a"): 1}.get)  # type: ignore[arg-type]
    for _ in range(2):
        assert from_memory(facts.get(DEMO)) == 1
    assert facts.remembered == [DEMO]


def test_a_policy_that_must_not_wait_never_sees_that_it_would_have_to() -> None:
    seen: list[str] = []

    async def policy(facts: Facts) -> None:
        try:
            await facts.get(KubeVirtKey())
        except Exception:
            seen.append("error")
        finally:
            seen.append("end")

    with pytest.raises(NotInMemory) as missing:
        from_memory(policy(Facts()))
    assert (missing.value.batch, seen) == ((KubeVirtKey(),), ["end"])


def test_keys_of_different_facts_differ() -> None:
    assert (len(set(KEYS)), len({SchedulerKey("a"), NamespaceKey("a")})) == (len(KEYS), 2)


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers()), max_size=20))
def test_the_first_answer_stands(answers: list[tuple[Key[Any], int]]) -> None:
    """A world that changes while a review runs does not change the review."""
    now: dict[Key[Any], object] = {}
    facts = Facts(0.0, lambda key: now.get(key, NOT_READ))
    first: dict[Key[Any], object] = {}
    for key, value in answers:
        now[key] = value
        assert from_memory(facts.get(key)) == first.setdefault(key, value)


SIZE: Key[Any] = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small")
UNCACHED: Key[Any] = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small", uncached=True)


def peeking(memory: dict[Key[Any], object]) -> Facts:
    return Facts(peek=lambda key: memory.get(key, NOT_READ))


def test_fresh_facts_ask_for_what_came_from_memory_and_for_nothing_twice() -> None:
    other: Key[Any] = ObjectKey(CLUSTER_INSTANCETYPES, "", "read")
    facts = peeking({SIZE: 1, KUBEVIRT: 2})
    assert answered(facts.all(SIZE, other), {other: None}) == ((1, None), [(other,)])
    assert facts.informer_keys() == [SIZE]
    found, batches = answered(facts.uncached().all(SIZE, other, KUBEVIRT), {UNCACHED: 3})
    assert (found, batches) == ((3, None, 2), [(UNCACHED,)])
    assert from_memory(facts.uncached().uncached().get(SIZE)) == 3
    assert from_memory(facts.get(SIZE)) == 1


def test_fresh_facts_never_begin_with_a_copy_and_serve_whoever_asks_later() -> None:
    facts = peeking({SIZE: 1})
    assert answered(facts.uncached().get(SIZE), {UNCACHED: 2}) == (2, [(UNCACHED,)])
    assert from_memory(facts.get(SIZE)) == 2
    assert facts.remembered == []


# -- what mypy does not see: a coroutine that is compared, or an argument, instead of being awaited ------------------

ROOT = Path(webhook.__file__).parent
MODULES = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if any(name in path.read_text() for name in ("webhook.facts", ".policies"))
]
DRIVERS = {"drive", "from_memory", "advance"}
OF_POLICIES = ("webhook.facts", "webhook.policies", "webhook.review.scope")
# What variables and attributes of these names hold.
INSTANCES: Mapping[str, object] = {"facts": Facts, "_facts": Facts, "lookups": Lookups, "_lookups": Lookups}


class Calls:
    """The calls in a module of coroutine functions that await facts.

    Args:
        source: of the module.
        names: those of the module, with what they stand for.
    """

    def __init__(self, source: str, names: Mapping[str, object]) -> None:
        self._tree = ast.parse(source)
        self._names = names
        self._parents = {child: parent for parent in ast.walk(self._tree) for child in ast.iter_child_nodes(parent)}

    def __iter__(self) -> Iterator[ast.Call]:
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Call):
                continue
            called = self._value(node.func)
            is_coroutine = isinstance(called, FunctionType) and inspect.iscoroutinefunction(called)
            if is_coroutine and called.__module__.startswith(OF_POLICIES):
                yield node

    def is_awaited(self, call: ast.Call) -> bool:
        """Whether a coroutine is awaited or driven, or what a lambda returns to somebody who does so."""
        match self._parents[call]:
            case ast.Await() | ast.Lambda():
                return True
            case ast.Call() as outer:
                return _name(outer.func) in DRIVERS
            case ast.Assign(targets=[ast.Name(variable)]):
                calls = (each for each in ast.walk(self._tree) if isinstance(each, ast.Call))
                driven = (each for each in calls if _name(each.func) in DRIVERS)
                return any(isinstance(each, ast.Name) and each.id == variable for call in driven for each in call.args)
        return False

    def _value(self, node: ast.AST) -> object:
        """What an expression stands for, an instance for its class; None: it is not known."""
        match node:
            case ast.Name("self"):
                while not isinstance(node, ast.ClassDef | ast.Module):
                    node = self._parents[node]
                return self._names.get(node.name) if isinstance(node, ast.ClassDef) else None
            case ast.Name(name):
                return INSTANCES.get(name) or self._names.get(name)
            case ast.Attribute(value, name):
                return INSTANCES.get(name) or getattr(self._value(value), name, None)
            case ast.Call(func=ast.Attribute(value, "uncached")):
                return self._value(value)
        return None


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_every_coroutine_that_awaits_facts_is_awaited_or_driven(path: Path) -> None:
    calls = Calls(path.read_text(), vars(importlib.import_module(module_name(path))))
    assert [ast.unparse(call) for call in calls if not calls.is_awaited(call)] == []


@pytest.mark.parametrize(
    ("text", "is_awaited"),
    [
        ("await facts.get(KEY)", True),
        ("await self._facts.uncached().get(KEY)", True),
        ("lambda: read(facts, KEY, 'it')", True),
        ("from_memory(read(facts, KEY, 'it'))", True),
        ("it = read(facts, KEY, 'it'); from_memory(it)", True),
        ("facts.get(KEY) is None", False),
        ("isinstance(facts.uncached().get(KEY), Unavailable)", False),
        ("isinstance(lookups.read_one('Kind', 'name'), dict)", False),
        ("it = read(facts, KEY, 'it'); print(it)", False),
        ("required_facts.read(facts, KEY, 'it') == 1", False),
    ],
)
def test_a_missing_await_is_found(text: str, is_awaited: bool) -> None:
    calls = Calls(
        f"async def policy(facts, lookups): {text}", {"read": required_facts.read, "required_facts": required_facts}
    )
    assert [calls.is_awaited(call) for call in calls] == [is_awaited]
