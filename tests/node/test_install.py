"""Installing, upgrading and removing, with kubelets that pull images and start containers."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.e2e.support.kube import KubeError, eventually
from tests.e2e.support.objects import ensure_namespace

from . import support
from .support import IMAGE, NAMESPACE, UPGRADED, NodeInstallation, NodeReviews


def test_a_second_run_has_nothing_to_do(installed: NodeInstallation) -> None:
    assert installed.install().stdout.endswith("\nno changes\n")
    assert len(installed.ready_pods()) == 2


def test_an_upgrade_and_the_way_back_deny_nothing_and_miss_nothing(
    installed: NodeInstallation, load: NodeReviews
) -> None:
    for image in (UPGRADED, IMAGE):
        installed.install(image)
        assert installed.images() == {image}
        load.more()

    assert (load.denied, load.unchanged) == ([], 0)


def test_an_image_that_cannot_be_pulled_is_told_again_and_again_until_the_way_back(
    installed: NodeInstallation, load: NodeReviews
) -> None:
    failed = installed.install(support.MISSING, "--timeout=15", check=False)
    again = installed.run("install", "--timeout=10", check=False)

    for done in (failed, again):
        assert done.returncode == 2
        assert "ErrImagePull" in done.stderr or "ImagePullBackOff" in done.stderr
        assert f"kubectl -n {NAMESPACE} describe pod kubevirt-webhook-" in done.stderr
    assert "no changes" not in again.stdout
    report = json.loads(installed.run("doctor", "-o", "json", check=False).stdout)
    codes = {(finding["code"], finding["verdict"]) for finding in report["findings"]}
    assert ("rollout-stuck", "failure") in codes

    # The replicas of before serve all the time.
    load.more()
    installed.install(IMAGE)
    installed.wait_ready()
    assert (load.denied, load.unchanged) == ([], 0)


def test_replicas_that_never_become_ready_are_no_success(installed: NodeInstallation, load: NodeReviews) -> None:
    done = installed.install(support.BROKEN, "--timeout=10", check=False)

    assert done.returncode == 2
    assert "Pod kubevirt-webhook-" in done.stderr
    load.more()
    installed.install(IMAGE)
    assert (load.denied, load.unchanged) == ([], 0)


def test_a_name_that_is_no_image_is_told_at_once(installed: NodeInstallation) -> None:
    done = installed.install("kubevirt-webhook:{IMAGE}", "--timeout=60", check=False)

    assert done.returncode == 2
    assert "InvalidImageName" in done.stderr
    assert "timed out" not in done.stderr
    installed.install(IMAGE)


def test_an_interrupted_installation_is_continued(installed: NodeInstallation, load: NodeReviews) -> None:
    command = installed.command("install", f"--image={UPGRADED}")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=support.environment()
    ) as run:
        assert run.stdout
        for line in run.stdout:
            if line.startswith("waiting: "):
                break
        assert support.interrupt(run) == 130

    installed.run("install")
    assert installed.images() == {UPGRADED}
    installed.install(IMAGE)
    assert (load.denied, load.unchanged) == ([], 0)


def test_uninstalling_denies_nothing_and_leaves_nothing(installed: NodeInstallation, load: NodeReviews) -> None:
    load.more()
    said = installed.run("uninstall").stdout

    assert said.endswith("\nuninstalled\n")
    load.more()
    assert load.denied == []
    assert installed.run("uninstall").stdout.endswith("\nkubevirt-webhook is not installed\n")


def test_a_namespace_that_does_not_go_is_told_with_its_cause(installed: NodeInstallation) -> None:
    holder = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["example.org/hold"]}}
    installed.admin.create("v1/configmaps", holder, NAMESPACE)
    stuck = installed.run("uninstall", "--timeout=12", check=False)
    meanwhile = installed.install(check=False)
    installed.admin.patch("v1/configmaps", "held", {"metadata": {"finalizers": None}}, NAMESPACE)

    assert (stuck.returncode, meanwhile.returncode) == (2, 2)
    assert "example.org/hold" in stuck.stderr
    assert f"kubectl get namespace {NAMESPACE} -o yaml" in stuck.stderr
    assert "is being deleted" in meanwhile.stderr
    assert installed.run("uninstall").returncode == 0
    installed.install()


def test_pods_that_a_quota_denies_are_told_by_installer_and_doctor(node: NodeInstallation) -> None:
    node.run("uninstall")
    ensure_namespace(node.admin, NAMESPACE)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    node.admin.create("v1/resourcequotas", quota, NAMESPACE)
    installed = node.install(IMAGE, "--timeout=10", check=False)
    report = json.loads(node.run("doctor", "-o", "json", check=False).stdout)
    node.run("uninstall")

    assert installed.returncode == 2
    assert "exceeded quota: few" in installed.stderr
    (finding,) = (one for one in report["findings"] if one["code"] == "none-ready")
    assert "exceeded quota: few" in finding["found"]


def test_a_volume_that_cannot_be_mounted_is_told_from_the_pods_events(installed: NodeInstallation) -> None:
    container = {"name": "webhook", "volumeMounts": [{"name": "more", "mountPath": "/m"}]}
    pod = {"volumes": [{"name": "more", "secret": {"secretName": "gone"}}], "containers": [container]}
    kind, name, namespace = support.DEPLOYMENT
    installed.admin.patch(kind, name, {"spec": {"template": {"spec": pod}}}, namespace, kind="strategic")

    def told() -> str:
        """What another run says once the kubelet has tried to mount it."""
        said = installed.run("install", "--timeout=5", check=False).stderr
        return said if "FailedMount" in said else ""

    assert 'secret "gone" not found' in eventually(told, what="the installer to tell of the volume")
    installed.run("uninstall")


def test_without_an_image_of_ones_own_no_registry_is_asked(node: NodeInstallation) -> None:
    node.run("uninstall")
    node.kubectl("apply", "--server-side", "-k", str(support.ROOT / "manifests" / "overlays" / "kubernetes"))

    def reasons() -> set[str]:
        states = [one["state"] for pod in node.pods() for one in pod["status"].get("containerStatuses", ())]
        return {state["waiting"]["reason"] for state in states if "waiting" in state}

    try:
        eventually(lambda: reasons() == {"InvalidImageName"}, what="kubelets to look at the image's name")
    finally:
        node.run("uninstall")
    with pytest.raises(KubeError) as caught:
        node.admin.get(*support.DEPLOYMENT)
    assert caught.value.status == 404
