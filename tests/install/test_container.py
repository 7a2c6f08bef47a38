"""The permissions of the container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RENDERED = sorted((ROOT / "manifests" / "rendered").glob("*.yaml"))
DOCKERFILE = (ROOT / "Dockerfile").read_text()
each_manifest = pytest.mark.parametrize("file", RENDERED, ids=lambda file: file.stem)


def pod_of(file: Path) -> tuple[Any, Any]:
    documents = filter(None, yaml.safe_load_all(file.read_text()))
    (pod,) = (one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Deployment")
    (container,) = pod["containers"]
    return pod, container


@each_manifest
def test_it_may_do_nothing_but_serve(file: Path) -> None:
    pod, container = pod_of(file)

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    expected = {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    assert container["securityContext"].items() >= expected.items()
    assert not any(pod.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
    assert not any("hostPath" in volume for volume in pod.get("volumes", ()))
    # A scheduler keeps all nodes and pods in memory, however many there are.
    assert file.stem.startswith("scheduler-") or container["resources"]["limits"]["memory"]


@each_manifest
def test_it_runs_on_the_stock_scheduler(file: Path) -> None:
    """The pod must not wait for the scheduler that the webhook injects, since that one may wait for the webhook."""
    assert pod_of(file)[0].get("schedulerName", "default-scheduler") == "default-scheduler"


@each_manifest
def test_no_manifest_names_an_image_that_a_registry_could_have(file: Path) -> None:
    """A cluster must not run an image that a stranger pushes under the name of a placeholder."""
    assert not re.fullmatch(r"[\w][\w.-]{0,127}", pod_of(file)[1]["image"].rpartition(":")[2])


def test_it_is_in_no_group_of_root() -> None:
    """A kubelet takes the user of the image, and not its group."""
    ((user, group),) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    context = pod_of(ROOT / "manifests" / "rendered" / "kubernetes.yaml")[0]["securityContext"]

    assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))
    assert context["runAsGroup"] > 0


def test_on_openshift_the_scc_chooses_user_and_group() -> None:
    for part in pod_of(ROOT / "manifests" / "rendered" / "openshift.yaml"):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & part["securityContext"].keys()


def test_the_image_starts_the_program_and_no_shell() -> None:
    last = DOCKERFILE.split("\nFROM ")[-1]
    commands = dict(re.findall(r"^(ENTRYPOINT|CMD|USER|RUN) (.*)$", last, re.MULTILINE))

    assert commands.pop("CMD").startswith("[")
    assert commands == {"ENTRYPOINT": '["/app/bin/kubevirt-webhook"]', "USER": "65532:65532"}
