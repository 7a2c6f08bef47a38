"""The permissions of the container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RENDERED = sorted((ROOT / "manifests" / "rendered").glob("*.yaml"))


def pod_of(file: Path) -> dict[str, Any]:
    documents = filter(None, yaml.safe_load_all(file.read_text()))
    (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("file", RENDERED, ids=lambda file: file.stem)
def test_it_may_do_nothing_but_serve(file: Path) -> None:
    pod = pod_of(file)
    (container,) = pod["containers"]
    allowed = container["securityContext"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert allowed["capabilities"] == {"drop": ["ALL"]}
    assert (allowed["allowPrivilegeEscalation"], allowed["readOnlyRootFilesystem"]) == (False, True)
    assert not any(pod.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
    assert not any("hostPath" in volume for volume in pod.get("volumes", ()))
    # A scheduler keeps all nodes and pods in memory, however many there are.
    assert file.stem.startswith("scheduler-") or container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("file", RENDERED, ids=lambda file: file.stem)
def test_it_runs_on_the_stock_scheduler(file: Path) -> None:
    """The pod must not wait for the scheduler that the webhook injects, since that one may wait for the webhook."""
    assert pod_of(file).get("schedulerName", "default-scheduler") == "default-scheduler"


def test_it_is_in_no_group_of_root() -> None:
    """A kubelet takes the user of the image, and not its group."""
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user
    context = pod_of(ROOT / "manifests" / "rendered" / "kubernetes.yaml")["securityContext"]

    assert (context["runAsUser"], context["runAsGroup"]) == (int(user[1]), int(user[2]))
    assert context["runAsGroup"] > 0


def test_on_openshift_the_scc_chooses_user_and_group() -> None:
    pod = pod_of(ROOT / "manifests" / "rendered" / "openshift.yaml")
    (container,) = pod["containers"]

    for context in (pod["securityContext"], container["securityContext"]):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys()


@pytest.mark.parametrize("file", RENDERED, ids=lambda file: file.stem)
def test_no_manifest_names_an_image_that_a_registry_could_have(file: Path) -> None:
    """A cluster must not run an image that a stranger pushes under the name of a placeholder."""
    (container,) = pod_of(file)["containers"]
    _, _, tag = container["image"].rpartition(":")

    assert not re.fullmatch(r"[\w][\w.-]{0,127}", tag)


def test_the_image_starts_the_program_and_no_shell() -> None:
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    last = stages[-1].splitlines()
    commands = {line.split()[0]: line for line in last if line.startswith(("ENTRYPOINT", "CMD", "USER", "RUN"))}

    assert commands["ENTRYPOINT"] == 'ENTRYPOINT ["/app/bin/kubevirt-webhook"]'
    assert commands["CMD"].startswith("CMD [")
    assert commands["USER"] == "USER 65532:65532"
    assert "RUN" not in commands
