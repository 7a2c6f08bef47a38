"""Hand-made histories: each promise broken in one of them, and kept in one that differs in little."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.e2e.support.migrations import EAST, WEST, guest, migration, source_of
from tests.e2e.support.objects import kubevirt_crds, node, obj
from tests.e2e.support.workloads import instancetype, preference, vm
from webhook.install.registration import RegistrationTarget, configurations
from webhook.settings_file import default_settings

from . import checker, model
from .__main__ import main
from .checker import check
from .history import (
    Call,
    Change,
    Fault,
    History,
    Json,
    ObjectId,
    Request,
    Run,
    Sample,
    SettingsWritten,
    Timelines,
    Webhook,
)
from .run import judge

DOMAIN = "kubevirt-webhook.github.io"
VM_SIZES = f"virtualmachines.instancetypes.enforce.{DOMAIN}"
VM_SCHEDULER = f"virtualmachines.scheduling.enforce.{DOMAIN}"
MIGRATIONS = f"virtualmachineinstancemigrations.migration.enforce.{DOMAIN}"
CURRENT = 150.0
# The moment of the request that a history is about. Its namespaces are as old as they need to be.
NOW = 10_000.0
LONG_AGO, JUST_NOW = NOW - 5_000, NOW - 20
REQUESTED = {"requested-by": "sigs.k8s.io/descheduler"}
ADMIN = {"username": "admin", "groups": ["system:masters"]}
SMALL = {"kind": "VirtualMachineInstancetype", "name": "small"}
LARGE = {"kind": "VirtualMachineInstancetype", "name": "large"}
SETTINGS = '{"schedulers": {"kubevirt": {"healthCheck": "off"}}}'


@lru_cache(maxsize=1)
def webhooks() -> tuple[Webhook, ...]:
    """The entries as they are shipped."""
    target = RegistrationTarget(url="https://webhook")
    return tuple(
        Webhook(
            entry["name"],
            "mutating" if manifest["kind"].startswith("Mutating") else "validating",
            entry["clientConfig"]["url"].removeprefix("https://webhook"),
            entry["failurePolicy"],
        )
        for manifest in configurations(default_settings(), target)
        for entry in manifest.get("webhooks", ())
    )


@lru_cache(maxsize=1)
def definitions() -> list[Json]:
    return kubevirt_crds()


def change(value: Json, at: float, *, deleted: bool = False) -> Change:
    return Change(ObjectId.of(value), at, at + 0.01, None if deleted else value, int(at * 100))


def namespace(at: float, *policies: str, name: str = "demo", **annotations: str) -> Change:
    """A namespace that enforces some policies, from a moment on; keywords are annotations, with ``_`` for ``-``."""
    ours = {f"{DOMAIN}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    labels = {f"{DOMAIN}/{policy}": "enforce" for policy in policies}
    return change(obj("Namespace", name, labels=labels, annotations=ours), at)


def named(made: Json) -> Json:
    """An object of the namespace ``demo``."""
    made["metadata"]["namespace"] = "demo"
    return made


KUBEVIRT = change(
    named(obj("KubeVirt", "kubevirt", spec={})) | {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}}, 1.0
)
SIZES = [change(named(instancetype(name, cluster=False)), LONG_AGO) for name in ("small", "large")]


def history(*changes: Change, requests: Sequence[Request] = (), **parts: Any) -> History:
    ordered = sorted([KUBEVIRT, *SIZES, *changes], key=lambda one: one.after)
    settings = parts.pop("settings", [SettingsWritten(0.0, 1.0, SETTINGS)])
    run = Run(7, CURRENT, definitions(), "python -m tests.robustness --seed=7", 0.0)
    return History(run, ordered, list(requests), settings=settings, webhooks=list(webhooks()), **parts)


def create(sent: Json, *calls: Call, code: int = 201, resource: str = "virtualmachines", **more: Any) -> Request:
    """A request that is answered at `NOW`; by default what is stored is what was sent."""
    result = more.pop("result", sent) if code < 300 else None
    return Request(
        id="1",
        received=NOW,
        completed=NOW + 0.1,
        operation="UPDATE" if "old" in more else "CREATE",
        resource=resource,
        subresource="",
        namespace="demo",
        name=sent["metadata"].get("name", "move"),
        user=ADMIN,
        object=sent,
        code=code,
        result=result,
        calls=calls,
        **more,
    )


def validated(decision: str, reason: str, mode: str = "enforce") -> Call:
    return Call(VM_SIZES, "validating", mode, decision, reason)


def rules_of(found: History) -> set[str]:
    return {violation.rule for violation in check(found).violations}


# -- decisions ---------------------------------------------------------------------------------------------------------

ONLY_LARGE = {"allowed_instancetypes": "VirtualMachineInstancetype/large"}
ONLY_SMALL = {"allowed_instancetypes": "VirtualMachineInstancetype/small"}


def allowed_small(*changes: Change) -> History:
    """A VM with the instancetype ``small`` was admitted."""
    return history(*changes, requests=[create(named(vm("web", instancetype=SMALL)), validated("allowed", "valid"))])


def test_a_list_of_a_moment_ago_may_still_decide() -> None:
    found = allowed_small(
        namespace(LONG_AGO, "instancetypes", **ONLY_SMALL), namespace(JUST_NOW, "instancetypes", **ONLY_LARGE)
    )
    assert not {"unexplained", "not-allowed"} & rules_of(_with_reason(found, next(iter(_verdicts(found)))))


def test_a_list_that_was_replaced_too_long_ago_may_not() -> None:
    old = NOW - CURRENT - 60
    found = allowed_small(
        namespace(LONG_AGO, "instancetypes", **ONLY_SMALL), namespace(old, "instancetypes", **ONLY_LARGE)
    )
    assert {"unexplained", "not-allowed"} <= rules_of(found)


def test_the_other_way_round_it_is_denied_for_as_long() -> None:
    denied = history(
        namespace(LONG_AGO, "instancetypes", **ONLY_LARGE),
        namespace(JUST_NOW, "instancetypes", **ONLY_SMALL),
        requests=[
            create(named(vm("web", instancetype=SMALL)), validated("denied", "instancetype-not-allowed"), code=403)
        ],
    )
    assert rules_of(denied) == set()
    changed = [
        replace(one, after=one.after - 300, by=one.by - 300) if one.after == JUST_NOW else one for one in denied.changes
    ]
    assert rules_of(replace(denied, changes=changed)) == {"unexplained"}


def _verdicts(found: History) -> list[str]:
    """The reasons that states have for the decision of a history's first call."""
    from .model import Model

    model = Model(found)
    verdicts = model.explains(found.requests[0], replace(found.requests[0].calls[0], reason="?"), 0) or []
    return [verdict.reason for verdict in verdicts if verdict.decision == "allowed"]


def _with_reason(found: History, reason: str) -> History:
    request = found.requests[0]
    return replace(found, requests=[replace(request, calls=(replace(request.calls[0], reason=reason),))])


def demanding(at: float, cpus: int) -> Change:
    return change(named(preference("demanding", requirements={"cpu": {"guest": cpus}})), at)


def denied_by_preference(*changes: Change) -> History:
    spec: dict[str, Any] = {
        "instancetype": SMALL,
        "preference": {"kind": "VirtualMachinePreference", "name": "demanding"},
    }
    request = create(named(vm("web", **spec)), validated("denied", "kubevirt-rejects"), code=422)
    return history(namespace(LONG_AGO, "instancetypes"), *changes, requests=[request])


def test_a_denial_rests_on_what_is_there_now() -> None:
    """Not on what a store remembers: that is read again before (docs/instancetypes.md)."""
    denied = denied_by_preference(demanding(LONG_AGO, 8))
    reason = next(each.reason for each in _all_verdicts(denied))
    assert rules_of(_with_reason(denied, reason)) == set()
    changed = denied_by_preference(demanding(LONG_AGO, 8), demanding(JUST_NOW, 1))
    assert rules_of(_with_reason(changed, reason)) == {"unexplained"}


def _all_verdicts(found: History) -> list[Any]:
    from .model import Model

    request = found.requests[0]
    return Model(found).explains(request, replace(request.calls[0], reason="?"), 0) or []


def scheduled(mode: str, decision: str, reason: str, **call: Any) -> Request:
    stage = "enforce" if mode == "enforce" else "observe"
    entry = VM_SCHEDULER.replace("enforce", stage)
    return create(named(vm("web")), Call(entry, "mutating", mode, decision, reason, **call))


def test_that_a_namespace_has_not_opted_in_is_never_remembered() -> None:
    skipped = scheduled("off", "skipped", "out-of-scope")
    skipped = replace(skipped, calls=(replace(skipped.calls[0], webhook=VM_SCHEDULER),))
    assert "unexplained" in rules_of(
        history(namespace(LONG_AGO), namespace(JUST_NOW, "scheduling"), requests=[skipped])
    )
    assert "unexplained" not in rules_of(
        history(namespace(LONG_AGO, "scheduling"), namespace(NOW - 0.5), requests=[skipped])
    )


def test_a_patch_is_the_policys_own() -> None:
    found = history(namespace(LONG_AGO, "scheduling"), requests=[scheduled("enforce", "patched", "?")])
    (verdict,) = _all_verdicts(found)
    import json

    operations = json.loads(verdict.patch)
    right = scheduled("enforce", "patched", verdict.reason, patch=operations)
    wrong = scheduled("enforce", "patched", verdict.reason, patch=[{**operations[0], "value": "other"}])
    assert rules_of(replace(found, requests=[right])) == set()
    assert rules_of(replace(found, requests=[wrong])) == {"unexplained"}


def test_settings_may_count_for_half_a_minute_after_they_were_replaced() -> None:
    with_spread = SETTINGS.replace("}}}", '}}, "scheduling": {"virtualMachines": false}}')

    def found(at: float) -> History:
        request = scheduled("enforce", "allowed", "disabled")
        settings = [SettingsWritten(0.0, 1.0, with_spread), SettingsWritten(at, at, SETTINGS)]
        return history(namespace(LONG_AGO, "scheduling"), requests=[request], settings=settings)

    assert rules_of(found(NOW - 10)) == set()
    assert rules_of(found(NOW - 120)) == {"unexplained"}


def test_not_knowing_takes_a_fault() -> None:
    broken = Fault("stopped etcd", NOW - 3, NOW + 1)
    call = Call(MIGRATIONS, "validating", "enforce", "error", "lookup-failed")
    request = create(named(migration("web", EAST)), call, code=503, resource="virtualmachineinstancemigrations")
    found = history(namespace(LONG_AGO, "migration"), requests=[request])
    assert rules_of(found) == {"unexplained"}
    assert rules_of(replace(found, faults=[broken])) == set()


def test_nodes_are_not_known_until_they_have_been_listed_again() -> None:
    """No GET stands in for their store."""
    call = Call(MIGRATIONS, "validating", "enforce", "error", "lookup-failed")
    request = create(named(migration("web", EAST)), call, code=503, resource="virtualmachineinstancemigrations")
    vmi = named(guest("web"))
    vmi["status"] = {"phase": "Running", "nodeName": "node-east"}
    changes = [change(node("node-east", EAST), LONG_AGO), change(vmi, LONG_AGO)]
    found = history(namespace(LONG_AGO, "migration"), *changes, requests=[request])
    for ended, rules in ((model.RECOVERY_SECONDS - 1, set()), (model.RECOVERY_SECONDS + 1, {"unexplained"})):
        fault = Fault("failing pages", NOW - 300, NOW - ended)
        assert rules_of(replace(found, faults=[fault])) == rules


# -- failures ----------------------------------------------------------------------------------------------------------


def test_an_internal_error_is_never_right() -> None:
    call = Call(MIGRATIONS, "validating", "enforce", "error", "internal-error")
    request = create(named(migration("web", EAST)), call, code=503, resource="virtualmachineinstancemigrations")
    found = history(namespace(LONG_AGO, "migration"), requests=[request], faults=[Fault("anything", 0.0, 2 * NOW)])
    assert rules_of(found) == {"internal-error"}


def test_a_failed_call_has_a_cause() -> None:
    request = create(named(vm("web")), Call(VM_SCHEDULER, failed_open=True))
    found = history(namespace(LONG_AGO, "scheduling"), requests=[request])
    assert rules_of(found) == {"uncaused"}
    ended = Fault("killed replica", NOW - 60, NOW - model.RECOVERY_SECONDS / 2)
    assert rules_of(replace(found, faults=[ended])) == set()


def test_a_clock_that_is_off_within_the_grace_is_no_cause() -> None:
    request = create(named(vm("web")), Call(VM_SCHEDULER, failed_open=True))
    off = [Fault("clock off", NOW - 5, NOW + 5, "replica 0", 100.0)]
    jumps = [replace(off[0], what="clock jumps", clock=3600.0)]
    found = history(namespace(LONG_AGO, "scheduling"), requests=[request])
    assert rules_of(replace(found, faults=off)) == {"uncaused"}
    assert rules_of(replace(found, faults=jumps)) == set()


def test_without_memory_a_review_may_fail_and_never_the_other_way() -> None:
    call = Call(MIGRATIONS, "validating", "enforce", "error", "internal-error")
    short = [Fault("failing allocations", NOW - 5, NOW + 5)]
    request = create(named(migration("web", EAST)), call, code=503, resource="virtualmachineinstancemigrations")
    found = history(namespace(LONG_AGO, "migration"), requests=[request], faults=short)
    assert rules_of(found) == set()
    admitted = replace(request, code=201, result=request.object)
    assert rules_of(replace(found, requests=[admitted])) == {"failed-open"}


def test_a_decision_by_the_time_may_be_that_of_a_clock_that_is_wrong() -> None:
    """A VM that moved ten minutes ago may be evicted, and not where the replica's clock is nine minutes behind."""
    vmi = guest("web", evictionStrategy="LiveMigrate")
    vmi["metadata"] |= {"namespace": "demo", "uid": "1"}
    vmi["status"] = {
        "phase": "Running",
        "nodeName": "node-east",
        "conditions": [{"type": "LiveMigratable", "status": "True"}],
    }
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web", "uid": "1"}
    pod = named(source_of(vmi, "node-east"))
    pod["metadata"] |= {"name": "virt-launcher-web-abcde", "ownerReferences": [owner | {"controller": True}]}
    moved = named(migration("web", EAST))
    moved["metadata"] |= {"name": "move-1", "labels": {"kubevirt.io/vmi-name": "web"}}
    ended = dt.datetime.fromtimestamp(NOW - 600, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    moved["status"] = {"phase": "Succeeded", "migrationState": {"completed": True, "endTimestamp": ended}}
    eviction = obj("Eviction", "virt-launcher-web-abcde", namespace="demo", annotations=REQUESTED)
    call = Call(f"pods.eviction.enforce.{DOMAIN}", "mutating", "enforce", "denied", "?")
    request = replace(create(eviction, call, code=429, resource="pods"), subresource="eviction")
    changes = [namespace(LONG_AGO, "eviction"), *(change(one, LONG_AGO) for one in (vmi, pod, moved))]
    found = history(*changes, requests=[request])
    behind = [Fault("clock off", NOW - 5, NOW + 5, "replica 0", -540.0)]
    reasons = {each.reason for each in _all_verdicts(replace(found, faults=behind))}
    assert reasons - {each.reason for each in _all_verdicts(found)} == {"cool-down"}


BROKEN = [Fault("killed replica", NOW - 5, NOW + 5)]


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        (f'Internal error occurred: failed calling webhook "{VM_SIZES}": connection refused', ()),
        (
            f'admission webhook "{VM_SIZES}" denied the request: not evaluated now',
            (validated("error", "namespace-unreadable"),),
        ),
    ],
)
def test_what_is_ignored_denies_nobody(message: str, calls: tuple[Call, ...]) -> None:
    request = create(named(vm("web")), *calls, code=503, message=message)
    assert rules_of(history(namespace(LONG_AGO, "instancetypes"), requests=[request], faults=BROKEN)) == {
        "failed-closed"
    }
    # A migration to chosen nodes fails closed, as it is shipped.
    other = message.replace(VM_SIZES, MIGRATIONS)
    moved = create(named(migration("web", EAST)), code=503, message=other, resource="virtualmachineinstancemigrations")
    assert rules_of(history(namespace(LONG_AGO, "migration"), requests=[moved], faults=BROKEN)) == set()


def test_an_overload_denies_whatever_the_failure_policy() -> None:
    message = f'admission webhook "{VM_SIZES}" denied the request: no room'
    request = create(named(vm("web")), validated("error", "overloaded"), code=503, message=message)
    assert rules_of(history(namespace(LONG_AGO, "instancetypes"), requests=[request], faults=BROKEN)) == set()


def test_what_fails_closed_admits_nothing_that_was_not_evaluated() -> None:
    call = Call(MIGRATIONS, "validating", "enforce", "error", "namespace-unreadable")
    request = create(named(migration("web", EAST)), call, resource="virtualmachineinstancemigrations")
    found = history(namespace(LONG_AGO, "migration"), requests=[request], faults=BROKEN)
    assert rules_of(found) == {"failed-open"}
    denied = replace(request, code=503, result=None)
    assert rules_of(replace(found, requests=[denied])) == set()


def test_where_the_mode_denies_nothing_what_could_not_be_read_denies_nothing() -> None:
    """A label that was changed a moment ago may still count: the request came at the endpoint of the mode of now."""

    def admitted(mode: str) -> set[str]:
        call = Call(MIGRATIONS, "validating", mode, "error", "lookup-failed")
        request = create(named(migration("web", EAST)), call, resource="virtualmachineinstancemigrations")
        return rules_of(history(namespace(LONG_AGO, "migration"), requests=[request], faults=BROKEN))

    assert "failed-open" in admitted("enforce")
    assert "failed-open" not in admitted("audit")


def test_a_namespace_that_has_long_opted_in_is_asked_about() -> None:
    request = create(named(vm("web")))
    assert rules_of(history(namespace(LONG_AGO, "scheduling"), requests=[request])) == {"not-called"}
    assert rules_of(history(namespace(JUST_NOW, "scheduling"), requests=[request])) == set()
    chosen = create(named(vm("web", scheduler="mine")))
    assert rules_of(history(namespace(LONG_AGO, "scheduling"), requests=[chosen])) == set()


def test_a_migration_with_a_selector_is_asked_about() -> None:
    sent = named(migration("web", addedNodeSelector={"zone": "a"}))
    request = create(sent, resource="virtualmachineinstancemigrations")
    assert rules_of(history(namespace(LONG_AGO, "migration"), requests=[request])) == {"not-called"}
    assert rules_of(history(namespace(JUST_NOW, "migration"), requests=[request])) == set()
    # A replica that ended may have written no line of it.
    fault = Fault("killed replica", NOW - 1, NOW)
    assert rules_of(history(namespace(LONG_AGO, "migration"), requests=[request], faults=[fault])) == set()
    own = create(named(migration("web")), resource="virtualmachineinstancemigrations")
    assert rules_of(history(namespace(LONG_AGO, "migration"), requests=[own])) == set()
    denied = create(sent, resource="virtualmachineinstancemigrations", code=503)
    assert rules_of(history(namespace(LONG_AGO, "migration"), requests=[denied])) == set()


def test_what_was_answered_has_an_audit_line() -> None:
    request = create(named(vm("web")), Call(VM_SCHEDULER))
    assert rules_of(history(namespace(JUST_NOW, "scheduling"), requests=[request])) == {"unlogged"}
    fault = Fault("killed replica", NOW - 1, NOW)
    assert rules_of(history(namespace(JUST_NOW, "scheduling"), requests=[request], faults=[fault])) == set()


def test_a_history_says_what_it_had_nothing_to_check_by(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = history(namespace(LONG_AGO, "scheduling"))
    assert judge(nothing)[1] == 1
    said = capsys.readouterr().out
    assert "NOTHING CHECKED" in said
    for what in ("any decision", "mode enforce", "mode warn", "mode audit", VM_SCHEDULER, *checker.HELD):
        assert what in said

    denial = validated("denied", "instancetype-not-allowed")
    denied = create(named(vm("web", instancetype=SMALL)), denial, code=403)
    report, status = judge(history(namespace(LONG_AGO, "instancetypes", **ONLY_LARGE), requests=[denied]))
    said = capsys.readouterr().out
    assert (status, report.counts["calls explained in mode enforce"]) == (0, 1)
    assert "NOTHING" not in said
    assert "any decision" not in said
    assert f"{VM_SIZES} (validating)" not in said
    assert f"{VM_SIZES} (mutating)" in said
    assert "decisions in mode enforce" not in said


# -- what was given, and what was held ---------------------------------------------------------------------------------


def overwritten(before: Mapping[str, Any], after: Mapping[str, Any], *, mark: bool = True, **sent: Any) -> History:
    """A VM had a matcher, was overwritten without one, and has another one after it."""
    marks = {f"{DOMAIN}/injected-instancetype": "VirtualMachineInstancetype/small"} if mark else {}
    old, new = named(vm("web", **before)), named(vm("web", **after))
    old["metadata"]["annotations"] = marks
    call = Call(VM_SIZES, "mutating", "enforce", "patched", "not-looked-at")
    request = create(named(vm("web", runStrategy="Halted", **sent)), call, old=old, result=new)
    return history(namespace(LONG_AGO, "instancetypes"), requests=[request])


def test_a_default_stays_through_an_overwrite() -> None:
    lost = "default-lost"
    assert lost in rules_of(overwritten({"instancetype": SMALL}, {}))
    assert lost in rules_of(overwritten({"instancetype": SMALL}, {"instancetype": LARGE}))
    assert lost not in rules_of(overwritten({"instancetype": SMALL}, {"instancetype": SMALL}))
    # The owner's own choice is the owner's to take away, or to replace.
    assert lost not in rules_of(overwritten({"instancetype": SMALL}, {}, mark=False))
    assert lost not in rules_of(overwritten({"instancetype": SMALL}, {"instancetype": LARGE}, instancetype=LARGE))


def limited(*unfinished: Json) -> History:
    """A migration was admitted beside these, at most two of which may be unfinished."""
    two = SETTINGS.replace("}}}", '}}, "migration": {"maxUnfinished": 2}}')
    call = Call(MIGRATIONS, "validating", "enforce", "allowed", "not-looked-at")
    request = create(named(migration("web", EAST)), call, resource="virtualmachineinstancemigrations")
    changes = [change(one, JUST_NOW) for one in unfinished]
    settings = [SettingsWritten(0.0, 1.0, two)]
    return history(namespace(LONG_AGO, "migration"), *changes, requests=[request], settings=settings)


MOVES = [named(migration("other", WEST) | {"metadata": {"name": f"move-{number}"}}) for number in range(3)]


def test_a_limit_holds() -> None:
    assert "over-the-limit" in rules_of(limited(*MOVES))
    assert "over-the-limit" in rules_of(limited(*MOVES[:2]))
    assert "over-the-limit" not in rules_of(limited(MOVES[0]))
    assert "over-the-limit" not in rules_of(limited(MOVES[0], {**MOVES[1], "status": {"phase": "Failed"}}))


def test_a_migration_is_judged_by_all_nodes() -> None:
    """Of one that lacks some, no state is."""
    vmi = guest("web")
    vmi["metadata"]["namespace"] = "demo"
    vmi["status"] = {"phase": "Running", "nodeName": "node-east"}
    denied = Call(MIGRATIONS, "validating", "enforce", "denied", "no-eligible-node")
    nowhere = create(
        named(migration("web", {"example.com/zone": "nowhere"})),
        denied,
        code=403,
        resource="virtualmachineinstancemigrations",
    )
    ready = node("node-west", WEST) | {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    changes = [change(ready, LONG_AGO), change(vmi, JUST_NOW)]
    found = history(namespace(LONG_AGO, "migration"), *changes, requests=[nowhere])
    assert rules_of(found) == set()
    west = replace(nowhere, object=named(migration("web", WEST)))
    assert rules_of(replace(found, requests=[west])) == {"unexplained"}
    # Without the node, as a store may still have it, and as it may not any more.
    for created, rules in ((NOW - CURRENT, set()), (NOW - CURRENT - model.SLACK_SECONDS - 1, {"unexplained"})):
        changes = [change(ready, created), change(vmi, JUST_NOW)]
        assert rules_of(history(namespace(LONG_AGO, "migration"), *changes, requests=[west])) == rules


# -- readiness ---------------------------------------------------------------------------------------------------------


def samples(*ready: bool, blind: float | None = None) -> list[Sample]:
    return [Sample(NOW + number, "0", each, "why", blind) for number, each in enumerate(ready)]


def test_a_replica_is_ready_while_it_can_read_and_not_for_long_beyond() -> None:
    long, short = NOW - CURRENT - checker.NOTICE_SECONDS - 1, NOW - CURRENT
    faults = [Fault("blind replica", long, NOW + 10)]
    assert rules_of(history(samples=samples(True, True, blind=long), faults=faults)) == {"ready-while-blind"}
    assert rules_of(history(samples=samples(True, True, blind=short), faults=faults)) == set()
    assert rules_of(history(samples=samples(True, False), faults=faults)) == set()
    assert rules_of(history(samples=samples(True, False))) == {"not-ready-without-cause"}


# -- histories ---------------------------------------------------------------------------------------------------------


def test_a_violation_shows_what_it_rests_on_and_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    from .run import judge

    old = NOW - CURRENT - 60
    report, status = judge(
        allowed_small(namespace(LONG_AGO, "instancetypes", **ONLY_SMALL), namespace(old, "instancetypes", **ONLY_LARGE))
    )
    shown = capsys.readouterr().out
    assert status == 1
    assert "seed 7; to repeat it: python -m tests.robustness --seed=7" in shown
    (violation,) = [each for each in report.violations if each.rule == "unexplained"]
    # What was replaced before the window is no part of it.
    assert not any("VirtualMachineInstancetype/small" in line for line in violation.history if "Namespace" in line)


def test_of_a_namespace_is_shown_what_the_policy_reads() -> None:
    old = NOW - CURRENT - 60
    other = namespace(JUST_NOW, "instancetypes", "scheduling", **ONLY_LARGE)
    found = allowed_small(namespace(old, "instancetypes", **ONLY_LARGE), other, namespace(JUST_NOW + 1, "migration"))
    (violation,) = [each for each in check(found).violations if each.rule == "unexplained"]
    shown = [line.partition("Namespace demo: ")[2] for line in violation.history if "Namespace demo" in line]
    # That another policy was switched on is no part of it; that this one was switched off is.
    assert len(shown) == 2
    assert not any("scheduling" in line or "/migration" in line for line in shown)


def test_a_history_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    found = replace(allowed_small(namespace(LONG_AGO, "instancetypes")), faults=BROKEN, samples=samples(True, False))
    found.save(tmp_path / "history.jsonl")
    assert History.load(tmp_path / "history.jsonl") == found


NO_HISTORIES = (
    *(b"", b"\n", b"seed 4711\n", b"\xff\xfe", b"{}", b"null", b"[]", b'["Run", {}]', b'["Run", []]', b'["Other", {}]'),
    *(b'[1, {"seed": 1}]', b"[" * 100_000, b'["Sample", {"at": "x", "replica": "a", "ready": true, "text": ""}]'),
    b'["Fault", {"what": "stopped etcd", "began": 1, "ended": 2}]',
)


@pytest.mark.parametrize("content", NO_HISTORIES, ids=lambda content: repr(content[:20]))
def test_what_is_no_history_is_one_sentence(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "history.jsonl").write_bytes(content)
    assert main(["--check", str(tmp_path / "history.jsonl")]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "history.jsonl" in told.err


def test_nor_are_a_directory_and_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "none"):
        assert main(["--check", str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"Error: {path}: cannot be read: ")


def test_what_is_a_history_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history(namespace(LONG_AGO, "scheduling")).save(tmp_path / "history.jsonl")
    assert main(["--check", str(tmp_path / "history.jsonl")]) == 1
    assert "NOTHING CHECKED" in capsys.readouterr().out


@given(
    st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 3), st.booleans()), max_size=8),
    st.floats(0, 40),
    st.floats(0, 10),
    st.floats(0, 1),
)
def test_what_was_is_among_what_may_have_been(
    steps: list[tuple[float, float, bool]], begin: float, length: float, part: float
) -> None:
    """Whatever the moments really were, and however wide what is known of them."""
    changes, truth, now = [], [(0.0, None)], 0.0
    last: Json | None = None
    for number, (pause, width, deleted) in enumerate(steps):
        before, now = now, now + pause
        value = None if deleted else obj("Namespace", "demo", labels={"number": str(number)})
        after = max(before, now - width)
        changes.append(Change(ObjectId("Namespace", "", "demo"), after, now + width, value, number + 1))
        truth.append((now, value))  # type: ignore[arg-type]
        last = value
    # The widest that etcd's order leaves.
    for number in range(len(changes) - 2, -1, -1):
        changes[number] = replace(changes[number], by=min(changes[number].by, changes[number + 1].by))
    moment = begin + part * length
    was = [value for at, value in truth if at <= moment][-1]
    timelines = Timelines(changes)
    assert was in timelines.during(ObjectId("Namespace", "", "demo"), begin, begin + length)
    assert ([was] if was else []) in list(timelines.lists_during("Namespace", begin, begin + length))
    assert timelines.during(ObjectId("Namespace", "", "demo"), 1000, 1000) == ([last] if steps else [None])
