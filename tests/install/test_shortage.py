from __future__ import annotations

from typing import Any

import pytest

from tests.install.manifests import planned
from webhook.install.shortage import caller_shortage, deletion_shortage, replica_shortage

DEPLOYMENT = planned().deployment


def live(counts: tuple[int, int, int] = (3, 1, 2), **more: Any) -> dict[str, Any]:
    status = dict(zip(("replicas", "updatedReplicas", "availableReplicas"), counts, strict=True))
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 2, **status, **more},
    }


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


def test_a_complete_roll_out_lacks_nothing() -> None:
    assert replica_shortage(DEPLOYMENT, live((2, 2, 2)), None) is None


def test_replicas_that_were_scaled_down_by_others_count_as_they_are() -> None:
    none = live((0, 0, 0))
    none["spec"]["replicas"] = 0

    assert replica_shortage(DEPLOYMENT, none, None) is None


def test_a_deployment_that_somebody_deleted_is_missing() -> None:
    found = replica_shortage(DEPLOYMENT, None, None)

    assert found
    assert "does not exist" in found.what


def test_counts_of_an_older_generation_say_nothing() -> None:
    found = replica_shortage(DEPLOYMENT, live((2, 2, 2), observedGeneration=1), None)

    assert found
    assert "has not started" in found.what
    assert not found.failed


def test_pods_that_the_api_server_denies_are_told_with_its_reason() -> None:
    why = 'pods "kubevirt-webhook-" is forbidden: violates PodSecurity'
    found = replica_shortage(
        DEPLOYMENT, live((0, 0, 0), **condition("ReplicaFailure", "True", "FailedCreate", why)), None
    )

    assert found
    assert f"FailedCreate: {why}" in found.what
    assert "describe deployment kubevirt-webhook" in found.fix
    assert not found.failed


@pytest.mark.parametrize(
    ("conditions", "late"),
    [
        (condition("Progressing", "True", "ReplicaSetUpdated"), False),
        (condition("Progressing", "False", "ProgressDeadlineExceeded"), True),
    ],
)
def test_waiting_ends_when_the_deployment_controller_gives_up(conditions: dict[str, Any], late: bool) -> None:
    found = replica_shortage(DEPLOYMENT, live(**conditions), None)

    assert found
    assert (found.late, found.failed) == (late, False)


@pytest.mark.parametrize(
    ("namespaced", "command"), [(True, "kubectl -n n get secret s -o yaml"), (False, "kubectl get secret s -o yaml")]
)
def test_deletion_names_finalizers_and_the_command_that_shows_more(namespaced: bool, command: str) -> None:
    metadata = {"name": "s", **({"namespace": "n"} if namespaced else {})}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    found = deletion_shortage(manifest, {**manifest, "metadata": {**metadata, "finalizers": ["example.org/hold"]}})

    assert found
    assert "finalizers example.org/hold" in found.what
    assert command in found.fix
    assert deletion_shortage(manifest, None) is None


def test_callers_without_bundle() -> None:
    (first, *_) = planned().configurations
    found = caller_shortage(first, first)

    assert found
    assert first["webhooks"][0]["name"] in found.what
