"""The commands over an API server in memory; tests/e2e has a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.runner import run
from tests.install.manifests import planned
from tests.install.memory import InstallMemory, Replicas
from tests.install.vms import VMS, S, vm
from webhook.cli import confirmation, installation
from webhook.install import reach
from webhook.k8s.client import transport

CLUSTER = 'context "prod", https://prod.example:6443'
NO_CHANGES = f"cluster: {CLUSTER}\nno changes\n"
DEPLOYMENT = "/apis/apps/v1/namespaces/kubevirt-webhook/deployments/kubevirt-webhook"
POOL: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "web"}, "spec": {}}
MORE = """schedulers: {kubevirt: {guard: pods}}
scheduling: {virtualMachineInstances: true}
instancetypes: {parity: {sample: 1}}
"""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> InstallMemory:
    memory = InstallMemory()
    memory.cluster = CLUSTER
    Replicas(memory)

    async def connect(kubeconfig: str | None = None) -> InstallMemory:
        return memory

    monkeypatch.setattr(transport, "connect", connect)
    return memory


def image(api: InstallMemory) -> str:
    (found,) = (one for one in api.objects.values() if one["kind"] == "Deployment")
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


def callers(api: InstallMemory) -> Any:
    """The peers that may connect to the port webhooks."""
    (policy,) = (one for one in api.objects.values() if one["kind"] == "NetworkPolicy")
    (rule,) = (rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == "webhooks")
    return rule.get("from")


def test_callers_stay_until_others_are_given(api: InstallMemory) -> None:
    run("install", "--image=here:1")
    assert callers(api) is None

    assert "cidr: 10.0.0.0/28" in run("install", "--callers", "10.0.0.0/28", "--dry-run").output
    run("install", "--callers", "10.0.0.0/28")
    assert callers(api)[0] == {"ipBlock": {"cidr": "10.0.0.0/28"}}
    assert run("install").output == NO_CHANGES

    api.answers["GET", "/endpointslices"] = 200, {"items": [{"endpoints": [{"addresses": ["10.0.0.9"]}]}]}
    api.answers["GET", "/nodes"] = 200, {"items": []}
    run("install", "--callers", "auto")
    assert callers(api)[0] == {"ipBlock": {"cidr": "10.0.0.9/32"}}
    run("install", "--callers", "any")
    assert callers(api) is None
    assert run("install", "--callers", "nobody").exit_code == 2


def test_install_upgrade_uninstall(api: InstallMemory, tmp_path: Path) -> None:
    dry = run("install", "--image=here:1", "--dry-run")
    assert "+ Namespace kubevirt-webhook\n" in dry.output
    assert api.objects == {}

    assert run("install", "--image=here:1").output.endswith("installed\n")
    assert image(api) == "here:1"
    assert run("install").output == NO_CHANGES

    settings = tmp_path / "settings.yaml"
    settings.write_text(MORE)
    shown = run("install", "--config", settings, "--image", "here:2", "--dry-run").output
    assert "~ Deployment kubevirt-webhook/kubevirt-webhook\n" in shown
    assert "+        image: here:2" in shown
    assert "+ ClusterRole kubevirt-webhook-parity\n" in shown
    run("install", "--config", settings, "--image", "here:2")
    assert image(api) == "here:2"
    # Options that are not given keep their values.
    assert run("install").output == NO_CHANGES

    settings.write_text(MORE.partition("\n")[0])
    assert "- ClusterRole kubevirt-webhook-parity\n" in run("install", "--config", settings, "--dry-run").output

    assert run("uninstall", "--dry-run").output.startswith(f"cluster: {CLUSTER}\n- Namespace kubevirt-webhook\n")
    assert api.objects
    assert run("uninstall").output.endswith("uninstalled\n")
    assert api.objects == {}
    assert run("uninstall").output == f"cluster: {CLUSTER}\nkubevirt-webhook is not installed\n"
    assert api.closed


@pytest.mark.parametrize(
    ("arguments", "groups", "place"),
    [
        (["--overlay=openshift"], [], "openshift-cnv"),
        ([], ["/apis/config.openshift.io"], "openshift-cnv"),
        (["--overlay=kubernetes"], ["/apis/config.openshift.io"], "kubevirt"),
        ([], [], "kubevirt"),
    ],
)
def test_the_overlay_is_that_of_the_cluster(
    api: InstallMemory, arguments: list[str], groups: list[str], place: str
) -> None:
    for group in groups:
        api.answers["GET", group] = 200, {}
    run("install", "--image=here:1", *arguments)
    entries = [entry for one in api.objects.values() for entry in one.get("webhooks", ())]
    assert entries
    assert all(place in entry["namespaceSelector"]["matchExpressions"][1]["values"] for entry in entries)


def test_the_first_installation_needs_an_image(api: InstallMemory, golden: Callable[[str], None]) -> None:
    """No registry has an image of kubevirt-webhook: a made-up default would be installed and never start."""
    for arguments in ([], ["--dry-run"], ["--no-wait"]):
        result = run("install", *arguments)
        assert (result.exit_code, api.objects) == (2, {})
        assert "--image" in result.stderr
    golden(result.stderr)


def test_a_roll_out_that_hangs_is_no_success_though_nothing_is_left_to_change(
    api: InstallMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("install", "--image=here:1")
    api.then = lambda _: None
    failed = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    api.objects[DEPLOYMENT]["status"] = {"replicas": 3, "updatedReplicas": 1, "conditions": [failed]}

    # It may go on, since the cause may have been repaired before this run.
    again = run("install", "--timeout=1")
    assert again.exit_code == 2
    assert "timed out" in again.stderr
    dry = run("install", "--dry-run")
    assert dry.exit_code == 0
    assert dry.stderr.startswith("warning: the rollout ")
    assert run("install", "--no-wait").output == NO_CHANGES


def test_new_and_deleted_objects_are_shown_whole_on_request(api: InstallMemory, tmp_path: Path) -> None:
    assert "kind: Service" not in run("install", "--image=here:1", "--dry-run").output
    whole = run("install", "--image=here:1", "--dry-run", "--diff").output
    assert "+ Service kubevirt-webhook/kubevirt-webhook\n" in whole
    assert "\n  +kind: Service\n" in whole
    assert "image: here:1" in whole

    settings = tmp_path / "settings.yaml"
    settings.write_text(MORE)
    run("install", "--image=here:1", "--config", settings)
    settings.write_text(MORE.partition("\n")[0])
    gone = run("install", "--config", settings, "--dry-run", "--diff").output
    assert "- ClusterRole kubevirt-webhook-parity\n" in gone
    assert "\n  -kind: ClusterRole\n" in gone


def test_the_name_of_the_cluster_is_one_line(api: InstallMemory) -> None:
    api.cluster = 'context "a\nAre you sure? yes", https://prod'
    assert run("uninstall", "--dry-run").output.count("\n") == 2


def test_the_deployment_gives_up_before_we_do() -> None:
    deadline = planned().deployment["spec"]["progressDeadlineSeconds"]
    (timeout,) = (one for one in installation.install.params if one.name == "timeout")

    assert deadline < timeout.default


def test_a_cluster_that_gives_no_answer(api: InstallMemory, golden: Callable[[str], None]) -> None:
    api.answers["GET", "/apis/config.openshift.io"] = None
    result = run("install")

    assert result.exit_code == 2
    golden(result.stderr)


@pytest.mark.parametrize("content", [b"schedulrs: {}", b"\xff", None], ids=["unknown key", "bytes", "no file"])
def test_settings_with_mistakes_change_nothing(
    api: InstallMemory, tmp_path: Path, content: bytes | None, golden: Callable[[str], None]
) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_bytes(content)
    result = run("install", "--image=here:1", "--config", file)

    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    golden(result.stderr.replace(str(file), "FILE"))
    assert api.objects == {}


def test_on_a_terminal_we_ask(
    api: InstallMemory, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(confirmation, "is_on_terminal", lambda: True)
    run("install", "--image=here:1")
    assert api.objects == {}
    assert len(asked) == 1
    golden(asked[0])
    run("install", "--image=here:1", "--yes")
    assert api.objects
    run("uninstall")
    assert api.objects
    assert len(asked) == 2
    run("uninstall", "--yes")
    put_vm(api, "web")
    run("cleanup")
    assert len(asked) == 3
    assert all(CLUSTER in question for question in asked)


def test_uninstall_warns_of_pools_that_live_by_defaults(api: InstallMemory, golden: Callable[[str], None]) -> None:
    run("install", "--image=here:1")
    api.put("/apis/pool.kubevirt.io/v1beta1/namespaces/shop/virtualmachinepools/web", POOL)
    put_vm(api, "web-0")
    owner = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "web", "controller": True}
    metadata = api.objects[VMS.format("shop", "web-0")]["metadata"]
    metadata["ownerReferences"] = [owner]
    assert run("uninstall", "--dry-run").stderr == ""

    metadata["annotations"]["kubevirt-webhook.github.io/injected-instancetype"] = "A/b"
    golden(run("uninstall").stderr)


def put_vm(api: InstallMemory, name: str, **status: Any) -> None:
    thing = vm({S: "kubevirt"}, {S: "kubevirt"}, "kubevirt", **status)
    thing["metadata"]["name"] = name
    api.put(VMS.format("shop", name), thing)


def test_cleanup(api: InstallMemory, golden: Callable[[str], None]) -> None:
    put_vm(api, "web")
    put_vm(api, "running", created=True)
    shown = run("cleanup", "--dry-run").output
    assert {line.partition(": ")[0] for line in shown.splitlines()} == {
        "cluster",
        "VirtualMachine shop/web",
        "VirtualMachine shop/running",
    }
    golden(shown)
    assert api.wrote == []

    assert run("cleanup").output.endswith("cleaned 1/1 VM\n")
    assert run("cleanup", "--allow-restart-required").output.endswith("cleaned 1/1 VM\n")
    assert run("cleanup").output == f"cluster: {CLUSTER}\nno VM to clean\n"
    api.put("/api/v1/namespaces/shop/pods/one", {"metadata": {"annotations": {S: "kubevirt"}}})
    assert "\n0 VMIs and 1 launcher pod " in run("cleanup").output


def test_cleanup_tells_what_it_could_not_change(api: InstallMemory, golden: Callable[[str], None]) -> None:
    put_vm(api, "web")
    api.answers["PATCH", "/web"] = 422, {}
    result = run("cleanup")

    assert result.exit_code == 1
    assert result.stderr.startswith("VirtualMachine shop/web: ")
    golden(result.stderr)
    assert result.stdout.endswith("cleaned 0/1 VM\n")


def test_cleanup_refuses_while_we_are_called(api: InstallMemory, golden: Callable[[str], None]) -> None:
    put_vm(api, "web")
    run("install", "--image=here:1")
    api.wrote.clear()
    result = run("cleanup")

    assert result.exit_code == 2
    golden(result.stderr)
    assert api.wrote == []


def test_install_says_where_the_api_server_does_not_reach_the_replicas(
    api: InstallMemory, golden: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "PAUSE", 0.0)
    why = "dial tcp 10.1.2.3:8443: timeout"
    api.answers["GET", "/proxy/healthz"] = (
        503,
        {"kind": "Status", "reason": "ServiceUnavailable", "message": why},
    )
    first = run("install", "--image=here:1")
    again = run("install")
    not_waited_for = run("install", "--no-wait")

    golden(first.stderr)
    assert first.stdout.endswith("installed\n")
    assert again.stderr == first.stderr
    assert not_waited_for.stderr == ""


@pytest.mark.parametrize("answer", [(403, {"kind": "Status", "reason": "Forbidden"}), None], ids=["denied", "none"])
def test_install_is_silent_where_it_cannot_know_whether_the_replicas_are_reached(
    api: InstallMemory, answer: tuple[int, Any] | None
) -> None:
    api.answers["GET", "/proxy/healthz"] = answer

    assert run("install", "--image=here:1").stderr == ""
