from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json, read_node
from tests.policies.decisions import changes
from tests.policies.defaults.world import CLASS, LABELS, POOL, after, decide, encoded, section, vmi
from webhook import names
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import NodesKey
from webhook.placement.index import NodeIndex
from webhook.policies.defaults import reasons, rows

OFF = names.policy_label("defaults")


def annotation(name: str) -> str:
    return f"{names.DOMAIN}/injected-{name}"


def test_a_new_vmi_gets_what_its_owner_did_not_set() -> None:
    result = after(vmi())
    assert result["spec"] == {
        "domain": {"devices": {}, "cpu": {"model": "Skylake-Server"}},
        "priorityClassName": "vms",
        "evictionStrategy": "LiveMigrate",
        # Zero seconds are a choice as any other.
        "terminationGracePeriodSeconds": 0,
    }
    assert result["metadata"]["annotations"] == {
        annotation("priority-class-name"): "vms",
        annotation("eviction-strategy"): "LiveMigrate",
        annotation("termination-grace-period-seconds"): "0",
        annotation("cpu-model"): "Skylake-Server",
        # What virt-controller would take out of the spec again is for the pods.
        annotation("node-selector"): '{"zone":"a"}',
        annotation("required-node-affinity"): encoded([{"matchExpressions": [POOL]}]),
    }


def test_a_guest_from_another_cluster_keeps_the_cpu_that_it_has_there() -> None:
    received = vmi({"annotations": {"kubevirt.io/create-migration-target": "true"}})
    result = after(received)
    assert "cpu" not in result["spec"]["domain"]
    assert annotation("cpu-model") not in result["metadata"]["annotations"]
    assert result["spec"]["priorityClassName"] == "vms"
    codes = {reason.code for reason in decide(received).reasons}
    assert codes >= {reasons.RECEIVED, reasons.INJECTED}
    ordinary = vmi({"annotations": {"kubevirt.io/create-migration-target": "false"}})
    assert after(ordinary)["spec"]["domain"]["cpu"] == {"model": "Skylake-Server"}


OWNERS: Json = {
    "priorityClassName": "mine",
    "evictionStrategy": "None",
    "terminationGracePeriodSeconds": 0,
    "domain": {"cpu": {"model": "host-model", "cores": 2}},
}


@given(st.sets(st.sampled_from(sorted(OWNERS))))
def test_whatever_the_owner_wrote_stands(chosen: set[str]) -> None:
    written = {key: OWNERS[key] for key in chosen}
    found = after(vmi(**written), section(terminationGracePeriodSeconds=9, evictionStrategy="External"))
    full = after(vmi(**written))
    for result in (found, full):
        for key, value in written.items():
            assert result["spec"][key] == value
    assert all(annotation(rows_name) not in full["metadata"]["annotations"] for rows_name in _names(chosen))


@pytest.mark.parametrize("text", ["", "soon", "{}", "9" * 5000, "0x1"])
def test_what_an_owner_wrote_into_the_annotation_changes_nothing(text: str) -> None:
    """Clones and restored VMs bring annotations, and owners may write anything into them."""
    annotations = {annotation("termination-grace-period-seconds"): text}
    decision = decide(vmi({"annotations": annotations}, terminationGracePeriodSeconds=7))
    assert reasons.OWNER_CHOSE in {reason.code for reason in decision.reasons}
    assert after(vmi({"annotations": annotations}))["spec"]["terminationGracePeriodSeconds"] == 0


def test_an_owners_text_is_short_in_a_warning() -> None:
    decision = decide(vmi(architecture="a\nb" * 3000))
    (warning,) = decision.warnings
    assert warning.code == reasons.UNUSABLE
    assert len(warning.text) < 200
    assert "\n" not in warning.text


def _names(chosen: set[str]) -> list[str]:
    of = {
        "priorityClassName": "priority-class-name",
        "evictionStrategy": "eviction-strategy",
        "terminationGracePeriodSeconds": "termination-grace-period-seconds",
        "domain": "cpu-model",
    }
    return [of[key] for key in chosen]


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"labels": {OFF: "off"}}, reasons.OPTED_OUT),
        ({"annotations": {OFF: "off"}}, reasons.OPTED_OUT),
        ({"labels": {OFF: "enforce"}}, reasons.INJECTED),
    ],
)
def test_an_owner_may_decline(metadata: Json, code: str) -> None:
    decision = decide(vmi(metadata))
    assert reasons.INJECTED in {reason.code for reason in decision.reasons} or decision.code == code
    assert bool(decision.changes) is (code == reasons.INJECTED)


def test_what_is_not_evaluated() -> None:
    assert decide(vmi(), operation="UPDATE", oldObject=vmi()).code == common.OTHER_OPERATION
    assert decide(vmi() | {"spec": None}).code == reasons.NONE
    assert decide(vmi(), section(clusterWide=True)).code == reasons.NONE


@pytest.mark.control("annotations-with-defaults")
@pytest.mark.parametrize(
    ("facts", "row", "code"),
    [
        # The API server would deny the pods.
        ({CLASS: None}, rows.PRIORITY_CLASS, reasons.UNUSABLE),
        ({CLASS: Unavailable("forbidden")}, rows.PRIORITY_CLASS, common.LOOKUP_FAILED),
        # They would wait for a node.
        ({NodesKey(): NodeIndex()}, rows.CPU_MODEL, reasons.UNUSABLE),
        ({NodesKey(): Unavailable("too old")}, rows.CPU_MODEL, common.LOOKUP_FAILED),
    ],
)
def test_a_default_that_would_keep_the_vm_from_starting_is_left_out(facts: Any, row: rows.Default, code: str) -> None:
    decision = decide(vmi(), facts=facts)
    assert [warning.code for warning in decision.warnings] == [code]
    assert row.path not in changes(decision)
    assert rows.EVICTION_STRATEGY.path in changes(decision), "the others are set"
    # Where the owner chose, nothing is looked up.
    assert not decide(vmi(**OWNERS), facts=facts).warnings


@pytest.mark.parametrize(("architecture", "is_set"), [("amd64", True), ("arm64", False), (None, True)])
def test_a_cpu_model_belongs_to_an_architecture(architecture: str | None, is_set: bool) -> None:
    spec: Json = {"architecture": architecture} if architecture else {}
    assert (rows.CPU_MODEL.path in changes(decide(vmi(**spec)))) is is_set


@pytest.mark.parametrize("model", ["host-model", "host-passthrough"])
def test_every_node_has_the_cpu_that_it_has(model: str) -> None:
    found = changes(decide(vmi(), section(cpuModel=model), {NodesKey(): NodeIndex()}))
    assert found[rows.CPU_MODEL.path] == model


def test_the_models_label_must_say_so() -> None:
    nodes = NodeIndex([read_node({"metadata": {"name": "n1", "labels": LABELS | {next(reversed(LABELS)): "false"}}})])
    assert rows.CPU_MODEL.path not in changes(decide(vmi(), facts={NodesKey(): nodes}))
