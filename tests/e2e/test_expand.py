"""`kubevirt-webhook expand --kubeconfig`: what a user who may read a volume learns from a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from .support.access import Access
from .support.kube import Json
from .support.objects import obj
from .support.pki import ADMIN, Identity
from .support.program import command
from .support.workloads import instancetype, vm

Expand = Callable[..., Result]


@pytest.fixture
def image(plane: Access, namespace: str) -> Iterator[str]:
    """A labelled claim, and what its labels name; the name of all three."""
    name = f"e2e-{namespace}"
    labels = {f"instancetype.kubevirt.io/default-{kind}": name for kind in ("instancetype", "preference")}
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    plane.admin.make(obj("PersistentVolumeClaim", name, labels=labels, spec=wanted), namespace)
    preferred = {"devices": {"preferredDiskBus": "virtio"}}
    made = (
        instancetype(name, cpu={"guest": 3}, memory={"guest": "3Gi"}),
        obj("VirtualMachineClusterPreference", name, spec=preferred),
    )
    for each in made:
        plane.admin.make(each)
    yield name
    for each in made:
        plane.admin.delete(plane.admin.resource_of(each), name)


@pytest.fixture
def expand(plane: Access, tmp_path: Path) -> Expand:
    """Runs the command as a user, over a VM."""

    def run(written: Json, *options: str, user: Identity = ADMIN) -> Result:
        (tmp_path / "vm.json").write_text(json.dumps(written))
        return command(plane, "expand", "-f", tmp_path / "vm.json", *options, user=user, check=False)

    return run


def inferring(namespace: str, claim: str) -> Json:
    """A VM whose volume says which instancetype and preference go with it."""
    made = vm("a", instancetype={"inferFromVolume": "root"}, preference={"inferFromVolume": "root"})
    made["metadata"]["namespace"] = namespace
    made["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]
    return made


def test_a_volume_leads_to_the_machine(expand: Expand, namespace: str, image: str) -> None:
    done = expand(inferring(namespace, image), "--explain", "-o", "json")
    found = json.loads(done.stdout)

    assert done.exit_code == 0, done.stderr
    size = {"kind": "VirtualMachineClusterInstancetype", "name": image, "inferredFromVolume": "root"}
    assert found["instancetype"] == size
    origins = {field["path"]: (field["value"], field["origin"]) for field in found["fields"]}
    assert origins["spec.domain.cpu.sockets"] == (3, "instancetype")
    assert origins["spec.domain.devices.disks[0].disk.bus"] == ("virtio", "preference")

    missing = expand(inferring(namespace, "none"))
    assert (missing.exit_code, 'persistentvolumeclaims "none" not found' in missing.stderr) == (1, True)


def test_the_users_rights_count(expand: Expand, namespace: str, image: str) -> None:
    done = expand(inferring(namespace, image), user=Identity("nobody-in-particular"))

    assert (done.exit_code, done.stdout) == (2, "")
    assert "grant list on kubevirts.kubevirt.io" in done.stderr
