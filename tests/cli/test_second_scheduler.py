"""`install --with scheduler` and its end, over an API server in memory; tests/e2e has a real one."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from click.testing import Result

from tests.cli import runner
from tests.install.manifests import MANIFESTS
from tests.install.memory import InstallMemory, Replicas
from tests.install.vms import VMS, vm
from webhook.install.plan import path
from webhook.k8s.client import transport

IMAGE = "registry.example/kube-scheduler:v1.36.3"
PLACE = "/namespaces/kubevirt-scheduler/{}/kubevirt-scheduler"
DEPLOYMENT = "/apis/apps/v1" + PLACE.format("deployments")
CONFIG_MAP = "/api/v1" + PLACE.format("configmaps")
NAMESPACE = "/api/v1/namespaces/kubevirt-scheduler"
POD: dict[str, Any] = {"spec": {"containers": [{"name": "kube-scheduler", "image": IMAGE}]}}
VMIS = "/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstances/{}"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / "rendered" / f"{name}.yaml").read_text()))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> InstallMemory:
    memory = InstallMemory()
    Replicas(memory)
    memory.answers["GET", "/version"] = 200, {"gitVersion": "v1.36.3+rke2r1"}
    memory.answers["GET", "/kube-system/pods"] = 200, {"items": [POD]}
    memory.answers["GET", "/openshift-kube-scheduler/pods"] = 200, {"items": []}

    async def connect(kubeconfig: str | None = None) -> InstallMemory:
        return memory

    monkeypatch.setattr(transport, "connect", connect)
    run("install", "--image=here:1")
    return memory


def run(*arguments: str) -> Result:
    """Run a command; `install` gets an image for the webhook's own replicas."""
    return runner.run(*arguments, *(["--image=registry.example/webhook:1"] if "install" in arguments else []))


def image(api: InstallMemory) -> str:
    return str(api.objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"])


def test_it_comes_when_it_is_asked_for_and_stays_until_it_is_uninstalled(api: InstallMemory) -> None:
    assert DEPLOYMENT not in api.objects

    assert (
        "+ Deployment kubevirt-scheduler/kubevirt-scheduler" in run("install", "--with=scheduler", "--dry-run").output
    )
    assert run("install", "--with=scheduler").output.endswith("installed\n")
    assert image(api) == IMAGE
    assert run("install").output.endswith("no changes\n")
    assert run("install", "--with=scheduler").output.endswith("no changes\n")

    assert "- Namespace kubevirt-scheduler" in run("uninstall", "--dry-run").output
    run("uninstall")
    assert api.objects == {}
    # Its dependencies are created before its pods, and removed after them.
    wrote = [one for one in api.wrote if "scheduler" in one]
    assert wrote[0] == f"PATCH {NAMESPACE}"
    assert wrote[-1] == f"DELETE {NAMESPACE}"


def test_an_upgrade_of_the_cluster_brings_another_image_and_starts_anew(api: InstallMemory) -> None:
    run("install", "--with=scheduler", "--scheduler-variant=pack")
    newer = {"name": "kube-scheduler", "image": "x:v1.37.0"}
    api.answers["GET", "/kube-system/pods"] = 200, {"items": [{"spec": {"containers": [newer]}}]}
    assert run("install").output.endswith("no changes\n")

    shown = run("install", "--with=scheduler").output
    assert "+        image: x:v1.37.0" in shown
    assert "MostAllocated" in api.objects[CONFIG_MAP]["data"]["config.yaml"]
    shown = run("install", "--with=scheduler", "--scheduler-variant=spread").output
    assert "configuration-digest" in shown
    assert "LeastAllocated" in api.objects[CONFIG_MAP]["data"]["config.yaml"]


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("here/kube-scheduler", "here/kube-scheduler:v1.36.3"),
        ("here:5000/kube-scheduler", "here:5000/kube-scheduler:v1.36.3"),
        ("here:5000/kube-scheduler:v1.36.1", "here:5000/kube-scheduler:v1.36.1"),
        ("here/kube-scheduler@sha256:0123", "here/kube-scheduler@sha256:0123"),
        ("here/kube-scheduler:mine", "here/kube-scheduler:mine"),
    ],
)
def test_an_image_of_the_admins_own(api: InstallMemory, given: str, used: str) -> None:
    run("install", "--with=scheduler", f"--scheduler-image={given}")

    assert image(api) == used


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["--with=scheduler", "--scheduler-image=a/b:v1.35.0"], "--scheduler-image"),
        (["--with=scheduler", "--scheduler-variant=load-aware"], "--scheduler-variant"),
        (["--with=scheduler", "--prometheus=http://p"], "--prometheus"),
        (["--scheduler-variant=pack"], "install"),
    ],
)
def test_what_does_not_fit_changes_nothing(api: InstallMemory, arguments: list[str], where: str) -> None:
    result = run("install", *arguments)

    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(f"Error: {where}: ")
    assert DEPLOYMENT not in api.objects


@pytest.mark.parametrize("answer", [(403, {"message": "forbidden"}), (200, {"items": []}), (200, b"nonsense")])
def test_where_no_scheduler_can_be_seen_its_image_must_be_given(api: InstallMemory, answer: tuple[int, Any]) -> None:
    api.answers["GET", "/kube-system/pods"] = answer
    result = run("install", "--with=scheduler")

    assert result.exit_code == 2
    # The cluster's version, without the suffix of a distribution.
    assert "kube-scheduler:v1.36.3\n" in result.stderr
    assert DEPLOYMENT not in api.objects


@pytest.mark.parametrize("answer", [(200, {"gitVersion": "one"}), (500, {}), None])
def test_a_cluster_without_a_version(api: InstallMemory, answer: tuple[int, Any] | None) -> None:
    api.answers["GET", "/version"] = answer

    assert run("install", "--with=scheduler").exit_code == 2
    assert DEPLOYMENT not in api.objects


def test_a_load_aware_scheduler_has_an_image_of_its_own_and_may_read_metrics(api: InstallMemory) -> None:
    chosen = ("--scheduler-variant=load-aware", "--scheduler-image=here/kube-scheduler:v1.36.2")
    run("install", "--with=scheduler", *chosen, "--prometheus=http://p:9090")

    (role,) = (one for path, one in api.objects.items() if path.endswith("/clusterroles/kubevirt-scheduler"))
    assert "metrics.k8s.io" in {group for rule in role["rules"] for group in rule["apiGroups"]}
    assert image(api) == "here/kube-scheduler:v1.36.2"
    assert 'address: "http://p:9090"' in api.objects[CONFIG_MAP]["data"]["config.yaml"]
    assert run("install").output.endswith("no changes\n")


def test_another_scheduler_in_its_place_is_left_alone(api: InstallMemory) -> None:
    api.put(NAMESPACE, {"kind": "Namespace", "metadata": {"name": "kubevirt-scheduler"}})
    result = run("install", "--with=scheduler")

    assert (result.exit_code, DEPLOYMENT in api.objects) == (2, False)
    assert result.stderr.startswith("Error: Namespace kubevirt-scheduler: ")
    run("uninstall")
    assert list(api.objects) == [NAMESPACE]


def test_one_that_kustomize_has_applied_is_kustomizes(api: InstallMemory) -> None:
    for one in documents("scheduler-spread"):
        api.put(path(one), one)
    before = dict(api.objects)

    assert run("install").output.endswith("no changes\n")
    assert api.objects == before


def test_it_is_kept_while_somebody_would_wait_for_it(api: InstallMemory) -> None:
    run("install", "--with=scheduler")
    place = VMS.format("shop", "web")
    api.put(place, vm({}, {}, "kubevirt"))
    api.put(VMIS.format("shop", "web"), {"metadata": {"name": "web"}, "spec": {"schedulerName": "kubevirt"}})
    # Its template has no schema.
    api.put(VMS.format("shop", "odd"), {"metadata": {"name": "odd"}, "spec": {"template": [1]}})

    result = run("uninstall")

    assert "1 VM, 1 VMI and 0 waiting pods" in result.stderr
    assert DEPLOYMENT in api.objects
    assert not any("webhookconfigurations" in path for path in api.objects)

    del api.objects[place], api.objects[VMIS.format("shop", "web")]
    assert run("uninstall").output.endswith("uninstalled\n")
    assert not any("scheduler" in path for path in api.objects)


def test_on_openshift_the_cluster_chooses_the_user(api: InstallMemory) -> None:
    api.objects.clear()
    run("install", "--image=here:1", "--with=scheduler", "--overlay=openshift")

    template = api.objects[DEPLOYMENT]["spec"]["template"]
    assert "runAsUser" not in template["spec"]["securityContext"]
    assert template["metadata"]["annotations"]["openshift.io/required-scc"] == "restricted-v2"


def test_what_a_newer_scheduler_must_list_is_granted_until_the_manifests_know_it(api: InstallMemory) -> None:
    """Kubernetes 1.37 was such a version: without the new kind, its scheduler ran and placed nothing."""
    rules = [{"apiGroups": ["resource.k8s.io"], "resources": ["devicepools"], "verbs": ["get", "list", "watch"]}]
    upstream = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
    api.objects[f"{role}system%3Akube-scheduler"] = upstream | {"metadata": {"name": "system:kube-scheduler"}}

    done = run("install", "--with=scheduler")
    assert "list devicepools.resource.k8s.io, watch devicepools.resource.k8s.io" in done.stderr
    added = {"apiGroups": ["resource.k8s.io"], "resources": ["devicepools"], "verbs": ["list", "watch"]}
    assert api.objects[f"{role}kubevirt-scheduler"]["rules"][-1] == added
    # It stays granted where the scheduler is not mentioned.
    assert run("install").output.endswith("no changes\n")
