"""`kubevirt-webhook expand --kubeconfig`: what a user who may read a volume learns from a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from .support.access import Access
from .support.kube import Json
from .support.pki import ADMIN, Identity
from .support.program import command

GROUP = "instancetype.kubevirt.io/v1beta1"
Expand = Callable[..., Result]


@pytest.fixture
def image(plane: Access, namespace: str) -> Iterator[str]:
    """A labelled claim, and what its labels name; the name of all three."""
    name = f"e2e-{namespace}"
    labels = {f"instancetype.kubevirt.io/default-{kind}": name for kind in ("instancetype", "preference")}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.admin.create("v1/persistentvolumeclaims", claim, namespace)
    specs = {
        "Instancetype": {"cpu": {"guest": 3}, "memory": {"guest": "3Gi"}},
        "Preference": {"devices": {"preferredDiskBus": "virtio"}},
    }
    for kind, spec in specs.items():
        made = {"apiVersion": GROUP, "kind": f"VirtualMachineCluster{kind}", "metadata": {"name": name}, "spec": spec}
        plane.admin.create(f"{GROUP}/virtualmachinecluster{kind.lower()}s", made)
    yield name
    for kind in specs:
        plane.admin.delete(f"{GROUP}/virtualmachinecluster{kind.lower()}s", name)


@pytest.fixture
def expand(plane: Access, tmp_path: Path) -> Expand:
    """Runs the command as a user, over a VM."""

    def run(vm: Json, *options: str, user: Identity = ADMIN) -> Result:
        (tmp_path / "vm.json").write_text(json.dumps(vm))
        return command(plane, "expand", "-f", tmp_path / "vm.json", *options, user=user, check=False)

    return run


def vm(namespace: str, claim: str) -> Json:
    volume = {"name": "root", "persistentVolumeClaim": {"claimName": claim}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {
            "runStrategy": "Always",
            "instancetype": {"inferFromVolume": "root"},
            "preference": {"inferFromVolume": "root"},
            "template": {"spec": {"domain": {"devices": {}}, "volumes": [volume]}},
        },
    }


def test_a_volume_leads_to_the_machine(expand: Expand, namespace: str, image: str) -> None:
    done = expand(vm(namespace, image), "--explain", "-o", "json")
    found = json.loads(done.stdout)

    assert done.exit_code == 0, done.stderr
    size = {"kind": "VirtualMachineClusterInstancetype", "name": image, "inferredFromVolume": "root"}
    assert found["instancetype"] == size
    origins = {field["path"]: (field["value"], field["origin"]) for field in found["fields"]}
    assert origins["spec.domain.cpu.sockets"] == (3, "instancetype")
    assert origins["spec.domain.devices.disks[0].disk.bus"] == ("virtio", "preference")

    missing = expand(vm(namespace, "none"))
    assert (missing.exit_code, 'persistentvolumeclaims "none" not found' in missing.stderr) == (1, True)


def test_the_users_rights_count(expand: Expand, namespace: str, image: str) -> None:
    done = expand(vm(namespace, image), user=Identity("nobody-in-particular"))

    assert (done.exit_code, done.stdout) == (2, "")
    assert "grant list on kubevirts.kubevirt.io" in done.stderr
