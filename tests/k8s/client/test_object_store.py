from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.k8s.client.reflector import ByteLimitedStore, ObjectName, ObjectStore
from webhook.k8s.types.meta import Namespace, ObjectMeta

NAMES = st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y", "z"]))


def named(name: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name))


def test_a_number_is_kept_and_what_is_there_may_change() -> None:
    room: ObjectStore[Namespace] = ObjectStore(1)
    assert room.put(("", "x"), named("1"))
    assert not room.put(("", "y"), named("1"))
    assert room.put(("", "x"), named("2"))
    assert ([*room.names()], [*room], len(room)) == ([("", "x")], [named("2")], 1)
    room.reject(("", "x"))
    assert room.drop(("", "x")) is room.get(("", "x")) is None


@given(st.lists(st.tuples(NAMES, st.sampled_from(["put", "drop", "refuse"]), st.integers(1, 9))))
def test_bytes_are_counted_right_whatever_happens(steps: list[tuple[ObjectName, str, int]]) -> None:
    room: ByteLimitedStore[Namespace] = ByteLimitedStore(lambda view: len(view.meta.name or ""), 20, 10)
    expected: dict[ObjectName, Namespace] = {}
    missing: set[str] = set()
    for name, step, size in steps:
        expected.pop(name, None)
        taken = [len(view.meta.name or "") for (namespace, _), view in expected.items() if namespace == name[0]]
        everything = sum(len(view.meta.name or "") for view in expected.values())
        if step == "put" and room.put(name, named("n" * size)):
            expected[name] = named("n" * size)
            assert sum(taken) + size <= 10 and everything + size <= 20
        elif step == "drop":
            room.drop(name)
        else:
            assert step == "refuse" or sum(taken) + size > 10 or everything + size > 20
            room.reject(name)
            missing.add(name[0])
    assert {name: room.get(name) for name in room.names()} == expected
    assert (len(room), len([*room])) == (len(expected),) * 2
    assert room.size == sum(len(view.meta.name or "") for view in room)
    for namespace in ("", "a", "b"):
        inside = [expected[name] for name in sorted(expected) if name[0] == namespace]
        assert room.all_of(namespace) == (None if namespace in missing else inside)
