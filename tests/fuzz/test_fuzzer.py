"""The fuzzer finds what breaks a promise, and keeps it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.fuzz import targets
from tests.fuzz.fuzzer import CORPUS, Fuzzer
from webhook.admission.decision import Change, Decision, Denial, Reason
from webhook.admission.reasons import scheduling
from webhook.review.endpoints import BY_PATH, Endpoint

PODS, VMS = BY_PATH["/mutate/scheduling/pods/enforce"], BY_PATH["/validate/instancetypes/virtualmachines/enforce"]
POD = (CORPUS / "reviews" / "capture-pod-create-launcher.json").read_bytes()
VM = (CORPUS / "reviews" / "vm-sized.json").read_bytes()


def decides(endpoint: Endpoint, decision: Decision | Callable[..., Decision]) -> Endpoint:
    policy = decision if callable(decision) else lambda *_: decision
    return msgspec.structs.replace(endpoint, handler=policy)


def changing(path: tuple[str, ...], old: Any, new: Any) -> Decision:
    return Decision((Reason(scheduling.INJECTED, "x"),), (Change(path, old, new, scheduling.INJECTED),))


def _fails(*_: object) -> Decision:
    raise ZeroDivisionError("division")


_counter = iter(range(10**9))


def _differs(*_: object) -> Decision:
    return changing(("spec", "schedulerName"), "default-scheduler", f"s{next(_counter)}")


@pytest.mark.parametrize(
    ("endpoint", "body", "promise"),
    [
        (decides(PODS, _fails), POD, "division"),
        (decides(PODS, _differs), POD, "same answer"),
        (decides(PODS, changing(("spec", "nodeName"), None, "node-a")), POD, "only what it owns"),
        (decides(PODS, changing(("metadata", "labels", "a"), None, "b")), POD, "only what it owns"),
        (decides(PODS, changing(("metadata", "annotations", "their/s"), None, "b")), POD, "only what it owns"),
        (decides(PODS, changing(("metadata", "gone"), "x", None)), POD, "only what it owns"),
        (decides(PODS, changing(("spec", "schedulerName"), "x", "y" * 999_999)), POD, "bounded"),
        (decides(VMS, Decision((Reason("r", "x"),), denial=Denial(500, "x"))), VM, "a code of the API"),
        (decides(VMS, Decision((Reason("r", "x"),), denial=Denial(422, " "))), VM, "says why"),
    ],
)
def test_a_broken_promise_is_found(endpoint: Endpoint, body: bytes, promise: str) -> None:
    with pytest.raises((AssertionError, ZeroDivisionError), match=promise):
        targets.review(endpoint, "enforce", body)


def test_what_it_finds_it_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(CORPUS, corpus)

    def hates(data: bytes) -> str:
        assert b"\x00" not in data
        return "fine"

    monkeypatch.setitem(cast("dict[str, Any]", targets.TARGETS), "texts", hates)
    run = Fuzzer(corpus, 1, ["texts"])

    failure = next(filter(None, (run.step() for _ in range(10_000))))

    (kept,) = (corpus / "texts").glob("found-*")
    assert b"\x00" in kept.read_bytes()
    assert str(kept) in failure
    assert "assert" in failure
    assert Fuzzer(corpus, 2, ["texts"]).run(0.0), "it is the first thing that is tried from now on"


def test_some_hundred_inputs_hold() -> None:
    run = Fuzzer(CORPUS, 3, sorted(targets.TARGETS))
    for _ in range(150):
        assert run.step() is None
