"""What `explain vm` says of a VM on a real API server is what then happens to it, its VMI and its pod."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import yaml

from webhook.forecast.vm import VmExplanation

from .conftest import SCHEDULERS
from .support.processes import ROOT
from .support.tenant import Tenant
from .support.workloads import launcher_of, vm

# The plane's scheduler is declared where the command is to know it, too.
SETTINGS = {"schedulers": SCHEDULERS}


def explain(tenant: Tenant, name: str, directory: Path) -> VmExplanation:
    settings = directory / "settings.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    kubeconfig = tenant.server.access.kubeconfig_for("admin", ["system:masters"])
    arguments = [f"{tenant.namespace}/{name}", f"--config={settings}", f"--kubeconfig={kubeconfig}", "-o", "json"]
    command = [sys.executable, "-m", "webhook", "explain", "vm", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return msgspec.convert(json.loads(done.stdout), VmExplanation)


def test_the_scheduler_that_is_named_is_the_one_that_the_pod_gets(tenant: Tenant, tmp_path: Path) -> None:
    made = tenant.create(vm("web"))
    found = explain(tenant, "web", tmp_path)

    pod = tenant.pod(launcher_of(tenant.start(made)))

    assert found.scheduler == pod["spec"]["schedulerName"] == "kubevirt"
    assert found.running_on == ""
    assert found.nodes
    assert found.nodes.count > 0


def test_nothing_is_written(tenant: Tenant, tmp_path: Path) -> None:
    before = tenant.create(vm("web"))
    explain(tenant, "web", tmp_path)

    assert tenant.owner.get("kubevirt.io/v1/virtualmachines", "web", tenant.namespace) == before
    assert tenant.owner.list("v1/pods", tenant.namespace) == []
