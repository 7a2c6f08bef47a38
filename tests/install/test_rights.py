"""The rights in the manifests, beside those that the end-to-end tests show to be enough."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]

# What only `serve --register` takes.
REGISTERING = "admissionregistration.k8s.io"


def rights(path: str, role: str) -> set[tuple[str, str, str]]:
    """Groups, resources and verbs of a ClusterRole."""
    (found,) = (
        document
        for document in yaml.safe_load_all((ROOT / path).read_text())
        if (document["kind"], document["metadata"]["name"]) == ("ClusterRole", role)
    )
    return {
        (group, resource, verb)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_server_may_all_that_it_may_in_the_end_to_end_tests() -> None:
    proven = {each for each in rights("tests/e2e/webhook.yaml", "e2e-kubevirt-webhook") if each[0] != REGISTERING}

    assert proven
    for path in ("base/rbac.yaml", "rendered/kubernetes.yaml", "rendered/openshift.yaml"):
        assert proven - rights(f"manifests/{path}", "kubevirt-webhook") == set(), f"manifests/{path} lacks rights"
