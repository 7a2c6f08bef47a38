from __future__ import annotations

from typing import Any

import pytest

from tests.install.manifests import planned
from webhook.install.shortage import caller_shortage, deletion_shortage, replica_shortage

DEPLOYMENT = planned().deployment


def live(counts: tuple[int, int, int] = (3, 1, 2), **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = dict(zip(("replicas", "updatedReplicas", "availableReplicas"), counts, strict=True))
    status = {"observedGeneration": 2, **status, **more}
    return {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


DENIED = 'pods "kubevirt-webhook-" is forbidden: violates PodSecurity'


@pytest.mark.parametrize(
    ("found", "what", "late"),
    [
        (live((2, 2, 2)), None, False),
        # Others have scaled it down.
        ({**live((0, 0, 0)), "spec": {"replicas": 0}}, None, False),
        (None, "does not exist", False),
        # Counts of an older generation say nothing.
        (live((2, 2, 2), observedGeneration=1), "has not started", False),
        (
            live((0, 0, 0), **condition("ReplicaFailure", "True", "FailedCreate", DENIED)),
            f"FailedCreate: {DENIED}",
            False,
        ),
        (live(**condition("Progressing", "True", "ReplicaSetUpdated")), "2/2 replicas are ready", False),
        # The Deployment controller has given up.
        (live(**condition("Progressing", "False", "ProgressDeadlineExceeded")), "2/2 replicas are ready", True),
    ],
)
def test_what_a_roll_out_lacks(found: Any, what: str | None, late: bool) -> None:
    lacking = replica_shortage(DEPLOYMENT, found, None)

    assert (lacking is None) is (what is None)
    if lacking and what:
        assert what in lacking.what
        assert (lacking.late, lacking.failed) == (late, False)
        assert found is None or "describe deployment kubevirt-webhook" in lacking.fix


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
