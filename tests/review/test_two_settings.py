"""Two replicas with different settings for an hour, and other mutators beside them: nothing goes back and forth."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from typing import Any

import jsonpatch
import msgspec

from tests import builders
from tests.builders import AVAILABLE, Json, known, launcher_pod, review, vm, vmi
from tests.review.memory import PODS, VMS, KeptInMemory, MemoryCluster
from webhook.admission.reasons import scheduling
from webhook.facts import Key, SchedulerKey
from webhook.review.reviewer import Reviewer
from webhook.settings.model import Settings


def declaring(name: str) -> Settings:
    """Settings that declare one scheduler, which is injected."""
    usual = builders.settings()
    scheduler = msgspec.structs.replace(usual.scheduling.schedulers["kubevirt"], name=name)
    section = msgspec.structs.replace(usual.scheduling, scheduler_name=name, schedulers={name: scheduler})
    return msgspec.structs.replace(usual, scheduling=section)


def facts_of(settings: Settings, chosen: str | None = None) -> dict[Key[Any], object]:
    """The facts as a replica with these settings reads them: it watches the schedulers that they declare."""
    facts = known(vmi(chosen))
    for name in ("kubevirt", "other"):
        facts[SchedulerKey(name, "demo")] = AVAILABLE if name in settings.scheduling.schedulers else None
    return facts


def admitted(settings: Settings, endpoint: Any, obj: Json, chosen: str | None = None) -> tuple[Json, list[Json], str]:
    """The object after a replica's answer, the patch, and the code of the reason."""
    kept = KeptInMemory()
    reviewer = Reviewer(MemoryCluster(facts_of(settings, chosen)), lambda: settings, kept, kept)
    answer = asyncio.run(reviewer.review(endpoint, msgspec.json.encode(review(obj)), 1e9))
    response = json.loads(answer)["response"]
    assert response["allowed"]
    assert kept.errors == []
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return jsonpatch.apply_patch(copy.deepcopy(obj), patch), patch, kept.records[-1].reasons[0].code


A, B = declaring("kubevirt"), declaring("other")


def test_what_one_replica_wrote_the_other_leaves_when_it_is_asked_again() -> None:
    """As at a reinvocation, which may reach another replica than the first call."""
    first, patch, code = admitted(A, VMS, vm())
    assert (code, first["spec"]["template"]["spec"]["schedulerName"]) == (scheduling.INJECTED, "kubevirt")
    assert patch
    again, patch, code = admitted(B, VMS, first)
    assert (patch, code) == ([], scheduling.ALREADY_INJECTED)
    assert again == first


def test_pods_of_the_other_replica_s_vms_fall_back_once() -> None:
    """A scheduler that this replica's settings do not declare has no health check here."""
    machine, _, _ = admitted(A, VMS, vm())
    pod = launcher_pod(schedulerName="kubevirt")
    pod["metadata"].setdefault("annotations", {}).update(machine["spec"]["template"]["metadata"]["annotations"])
    fallen, _, code = admitted(B, PODS, pod, "kubevirt")
    assert (code, fallen["spec"]["schedulerName"]) == (scheduling.FELL_BACK, "default-scheduler")
    for settings in (A, B):
        again, patch, code = admitted(settings, PODS, fallen, "kubevirt")
        assert (patch, code) == ([], scheduling.ALREADY_FELL_BACK)
        assert again == fallen


def test_other_mutators_before_and_after_keep_what_they_wrote() -> None:
    """A mutator that runs first, or after this one, counts as the owner: its scheduler stays."""
    theirs = vm(scheduler="theirs")
    assert admitted(A, VMS, theirs)[:2] == (theirs, [])
    ours, _, _ = admitted(A, VMS, vm())
    changed, removed = copy.deepcopy(ours), copy.deepcopy(ours)
    changed["spec"]["template"]["spec"]["schedulerName"] = "theirs"
    again, patch, code = admitted(A, VMS, changed)
    assert (again, patch) == (changed, [])
    assert code != scheduling.INJECTED
    del removed["spec"]["template"]["spec"]["schedulerName"]
    again, _, code = admitted(A, VMS, removed)
    # At CREATE it is set again, to the same: the API server calls each webhook once more at most.
    assert (again, code) == (ours, scheduling.INJECTED)
