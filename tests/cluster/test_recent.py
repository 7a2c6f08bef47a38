from __future__ import annotations

from webhook.cluster.recent import Recent

A, B, C = (("demo", name) for name in "abc")


def test_an_answer_is_shared_for_its_time() -> None:
    recent = Recent(1.0, 100)
    recent.put(A, b"one", 10.0)
    assert recent.get(A, 10.9) == b"one"
    assert recent.get(B, 10.9) is None
    assert recent.get(A, 11.0) is None
    assert recent.get(A, 10.9) is None


def test_the_newest_counts_and_lasts() -> None:
    recent = Recent(1.0, 100)
    recent.put(A, b"one", 10.0)
    recent.put(A, b"two", 10.5)
    assert recent.get(A, 11.2) == b"two"


def test_the_oldest_make_room_and_what_is_too_large_is_not_kept() -> None:
    recent = Recent(1.0, 100)
    for name in (A, B, C):
        recent.put(name, b"x" * 40, 10.0)
    assert [recent.get(name, 10.0) is not None for name in (A, B, C)] == [False, True, True]
    recent.put(A, b"x" * 101, 10.0)
    assert [recent.get(name, 10.0) for name in (A, B, C)] == [None] * 3
