"""The Plugin object beside a real KubeVirt: what KubeVirt makes of it, and of what it names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.support.kube import Json, KubeError, denial, eventually
from tests.e2e.support.program import command

from .conftest import CONFIGURATION
from .control_plane import RunningKubeVirt
from .place import Place

pytestmark = pytest.mark.kubevirt

PLUGINS = "plugin.kubevirt.io/v1alpha1/plugins"
MANIFEST: Json = yaml.safe_load(
    (Path(__file__).resolve().parents[3] / "manifests/components/kubevirt-plugin/plugin.yaml").read_text()
)
NAME = MANIFEST["metadata"]["name"]
SOCKETS = "kubevirt-plugin-sockets"


@pytest.fixture
def gated(real: RunningKubeVirt) -> Iterator[RunningKubeVirt]:
    """KubeVirt, whose feature gate a test may open."""
    if real.release.version.line < (1, 9):
        pytest.skip(f"KubeVirt {real.version} has no plugins, which came with 1.9")
    yield real
    denial(lambda: real.plane.admin.delete(PLUGINS, NAME))
    real.configure(**CONFIGURATION)


def test_kubevirt_accepts_it_behind_its_gate_and_starts_vms_whatever_it_names(
    gated: RunningKubeVirt, place: Place, apart: Place
) -> None:
    admin = gated.plane.admin
    refusal = denial(lambda: admin.create(PLUGINS, MANIFEST))
    assert refusal
    assert "Plugins feature gate is not enabled" in refusal.message

    gated.configure(developerConfiguration={"featureGates": ["Snapshot", "Plugins"]})

    def created() -> Json:
        try:
            return admin.create(PLUGINS, MANIFEST)
        except KubeError as error:
            assert "feature gate" in error.message
            raise

    made = eventually(created, what="virt-api to know the gate")
    assert made["spec"] == MANIFEST["spec"], "no field is unknown"

    place.vm()
    place.running()
    assert place.launcher()["spec"]["schedulerName"] == "kubevirt"
    assert SOCKETS in [volume["name"] for volume in place.launcher()["spec"]["volumes"]]

    # No configuration of these names is in this cluster, which stands for one that is not installed, or not ready:
    # KubeVirt 1.9 looks at none of them, not even with the strategy Fail.
    admin.patch(PLUGINS, NAME, {"spec": {"failureStrategy": "Fail"}})
    apart.vm(template={"domain": {"devices": {}, "memory": {"guest": "64Mi"}}})
    apart.running()
    assert not admin.get(PLUGINS, NAME).get("status")

    findings = json.loads(command(gated.plane, "doctor", "-o", "json", check=False).stdout)["findings"]
    codes = [finding["code"] for finding in findings if finding["subject"] == f"Plugin {NAME}"]
    assert codes == ["plugin-dangling"]
