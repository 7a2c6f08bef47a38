"""The commands over an API server in memory; tests/e2e has a real one."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.runner import Refused, run
from tests.golden_files import Golden
from tests.install.memory import MANIFESTS, VMS, InstallMemory, Replicas, S, planned, vm
from webhook import names
from webhook.cli import installation, prompt
from webhook.cli.installation import hunks
from webhook.install import shortage
from webhook.install.plan import path
from webhook.install.registration import API_VERSION
from webhook.k8s.client import transport

CLUSTER = 'context "prod", https://prod.example:6443'
NO_CHANGES = f"cluster: {CLUSTER}\nno changes\n"
DEPLOYMENT = "/apis/apps/v1/namespaces/kubevirt-webhook/deployments/kubevirt-webhook"
REPORTS = "/apis/wgpolicyk8s.io/v1alpha2"
MANAGED_BY = "app.kubernetes.io/managed-by"
MORE = """schedulers: {kubevirt: {healthCheck: pods}}
scheduling: {virtualMachineInstances: true}
instancetypes: {fidelityCheck: {sample: 1}}
"""
IMAGE = "registry.example/kube-scheduler:v1.36.3"
PLACE = "/namespaces/kubevirt-scheduler/{}/kubevirt-scheduler"
SCHEDULER_DEPLOYMENT = "/apis/apps/v1" + PLACE.format("deployments")
CONFIG_MAP = "/api/v1" + PLACE.format("configmaps")
NAMESPACE = "/api/v1/namespaces/kubevirt-scheduler"
VM_PATH = "/mutate/scheduling/virtualmachines/enforce"
HAND_OVER_DEPLOYMENT = planned().deployment


def connected(monkeypatch: pytest.MonkeyPatch) -> InstallMemory:
    """An API server in memory, whose replicas become ready; commands connect to it."""
    memory = InstallMemory()
    memory.cluster = CLUSTER
    Replicas(memory)

    async def connect(kubeconfig: str | None = None) -> InstallMemory:
        return memory

    monkeypatch.setattr(transport, "connect", connect)
    return memory


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> InstallMemory:
    return connected(monkeypatch)


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """What `install` leaves in an empty cluster."""
    with pytest.MonkeyPatch.context() as patch:
        memory = connected(patch)
        install()
    return memory.objects


@pytest.fixture
def installed(api: InstallMemory, objects: dict[str, Any]) -> InstallMemory:
    """The same after `install`."""
    api.objects = copy.deepcopy(objects)
    return api


def install(*arguments: str | Path) -> Result:
    """`install` with an image for the webhook's own replicas."""
    return run("install", "--image=here:1", *arguments)


def image(api: InstallMemory, deployment: str = DEPLOYMENT) -> str:
    return str(api.objects[deployment]["spec"]["template"]["spec"]["containers"][0]["image"])


def callers(api: InstallMemory) -> Any:
    """The peers that may connect to the port webhooks."""
    (policy,) = (one for one in api.objects.values() if one["kind"] == "NetworkPolicy")
    (rule,) = (rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == "webhooks")
    return rule.get("from")


@pytest.mark.control("strangers-send-reviews")
def test_callers_stay_until_others_are_given(installed: InstallMemory) -> None:
    assert callers(installed) is None
    assert "cidr: 10.0.0.0/28" in run("install", "--callers", "10.0.0.0/28", "--dry-run").output
    run("install", "--callers", "10.0.0.0/28")
    assert callers(installed)[0] == {"ipBlock": {"cidr": "10.0.0.0/28"}}
    assert run("install").output == NO_CHANGES

    installed.answers["GET", "/endpointslices"] = 200, {"items": [{"endpoints": [{"addresses": ["10.0.0.9"]}]}]}
    installed.answers["GET", "/nodes"] = 200, {"items": []}
    run("install", "--callers", "auto")
    assert callers(installed)[0] == {"ipBlock": {"cidr": "10.0.0.9/32"}}
    run("install", "--callers", "any")
    assert callers(installed) is None
    assert run("install", "--callers", "nobody").exit_code == 2


def test_install_upgrade_uninstall(api: InstallMemory, tmp_path: Path) -> None:
    dry = install("--dry-run").output
    assert "+ Namespace kubevirt-webhook\n" in dry
    assert "kind: Service" not in dry
    # New and deleted objects are shown whole on request.
    whole = install("--dry-run", "--diff").output
    assert "+ Service kubevirt-webhook/kubevirt-webhook\n" in whole
    assert "\n  +kind: Service\n" in whole
    assert "image: here:1" in whole
    assert api.objects == {}

    assert install().output.endswith("installed\n")
    assert image(api) == "here:1"
    assert run("install").output == NO_CHANGES

    settings = tmp_path / "settings.yaml"
    settings.write_text(MORE)
    shown = run("install", "--config", settings, "--image", "here:2", "--dry-run").output
    assert "~ Deployment kubevirt-webhook/kubevirt-webhook\n" in shown
    assert "+        image: here:2" in shown
    assert "+ ClusterRole kubevirt-webhook-fidelity\n" in shown
    run("install", "--config", settings, "--image", "here:2")
    assert image(api) == "here:2"
    # Options that are not given keep their values.
    assert run("install").output == NO_CHANGES

    settings.write_text(MORE.partition("\n")[0])
    gone = run("install", "--config", settings, "--dry-run", "--diff").output
    assert "- ClusterRole kubevirt-webhook-fidelity\n" in gone
    assert "\n  -kind: ClusterRole\n" in gone

    # As it deletes them: from then on no request waits for what is gone.
    _, *planned = run("uninstall", "--dry-run").output.splitlines()
    assert [line.split()[1] for line in planned[:3]] == [
        *["MutatingWebhookConfiguration"] * 2,
        "ValidatingWebhookConfiguration",
    ]
    assert planned[-1] == "- Namespace kubevirt-webhook"
    assert api.objects
    # What kubectl has added beside it would name what is gone.
    api.put("/apis/plugin.kubevirt.io/v1alpha1/plugins/kubevirt-webhook", {"kind": "Plugin"})
    assert run("uninstall").output.endswith("uninstalled\n")
    assert api.objects == {}
    assert run("uninstall").output == f"cluster: {CLUSTER}\nkubevirt-webhook is not installed\n"
    assert api.closed


def test_a_difference_shows_what_changed_alone_and_equal_places_once(api: InstallMemory, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(MORE)
    install("--config", settings)
    settings.write_text(f"{MORE}\nevents: on\n")

    said = run("install", "--config", settings, "--dry-run").output
    _, _, of_entries = said.partition("~ ValidatingWebhookConfiguration kubevirt-webhook\n")
    changed = [line for line in of_entries.splitlines() if line.startswith(("  -", "  +"))]
    assert changed == ["  -  sideEffects: None", "  +  sideEffects: NoneOnDryRun"] * (len(changed) // 2)
    assert re.search(r"  the same in \d\d other places\n", of_entries)


LINES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)


@given(LINES, LINES, st.integers(0, 300))
def test_the_places_of_a_difference_make_the_one_text_of_the_other(
    some: list[str], other: list[str], many: int
) -> None:
    before, after = ["same"] * many + some, ["same"] * many + other
    made = list(before)
    for place, lines in reversed(list(hunks(before, after))):
        old, size = (int(each) for each in place.split()[1].removeprefix("-").split(","))
        start = old - 1 if size else old
        assert made[start : start + size] == [line[1:] for line in lines if line[0] != "+"]
        made[start : start + size] = [line[1:] for line in lines if line[0] != "-"]
    assert made == after


def test_uninstall_deletes_the_reports_of_the_background_scan_and_no_others(api: InstallMemory) -> None:
    """Dashboards went on showing failures of what was not there any more."""
    install()
    for namespace, label in (("shop", "kubevirt-webhook"), ("lab", "kyverno")):
        metadata = {"name": "kubevirt-webhook", "namespace": namespace, "labels": {MANAGED_BY: label}}
        api.put(f"{REPORTS}/namespaces/{namespace}/policyreports/kubevirt-webhook", {"metadata": metadata})

    assert run("uninstall", "--dry-run").output.endswith("\n- PolicyReport shop/kubevirt-webhook\n")
    assert run("uninstall").output.endswith("uninstalled\n")
    assert list(api.objects) == [f"{REPORTS}/namespaces/lab/policyreports/kubevirt-webhook"]


def test_reports_that_cannot_be_listed_keep_nothing_else_from_being_removed(api: InstallMemory) -> None:
    install()
    api.answers["GET", "/policyreports"] = 403, {"kind": "Status"}
    said = run("uninstall").output
    assert "kubectl delete policyreports -A -l app.kubernetes.io/managed-by=kubevirt-webhook" in said
    assert said.endswith("uninstalled\n")
    assert api.objects == {}


def test_what_uninstall_keeps_has_the_commands_that_remove_it(api: InstallMemory) -> None:
    install()
    label, annotation = names.policy_label("sizes"), names.SPREAD_ANNOTATION
    api.put("/api/v1/namespaces/apart", {"metadata": {"name": "apart", "annotations": {annotation: "zone"}}})
    for name in [f"team-{number:02}" for number in range(21)]:
        api.put(f"/api/v1/namespaces/{name}", {"metadata": {"name": name, "labels": {label: "warn", "team": "a"}}})

    before = run("uninstall", "--dry-run").output
    said = run("uninstall").output
    afterwards = run("uninstall").output
    command = f"\n  kubectl label namespace team-03 {label}-\n"
    assert [command in each for each in (before, said, afterwards)] == [True, True, True]
    assert "will be kept" in before
    assert "is not installed\nkept: " in afterwards
    assert f"\n  kubectl annotate namespace apart {annotation}-\n" in said
    assert said.endswith("\n  and 2 commands like these\nuninstalled\n")


def test_another_namespace_is_found_again(api: InstallMemory, tmp_path: Path) -> None:
    assert install("--namespace=infra-vms").output.endswith("installed\n")
    assert {one["metadata"].get("namespace", "infra-vms") for one in api.objects.values()} == {"infra-vms"}
    assert run("install").output == NO_CHANGES
    assert run("hand-over", "--to-manager=kubectl", "--dry-run").exit_code == 0

    settings = tmp_path / "settings.yaml"
    settings.write_text(MORE)
    run("install", "--config", settings)
    assert run("install", "--namespace=infra-vms").output == NO_CHANGES
    assert "installed in the namespace infra-vms, not in other" in run("install", "--namespace=other").stderr
    settings.write_text("webhooks: {service: {namespace: other}}")
    assert "installed in the namespace infra-vms, not in other" in run("install", "--config", settings).stderr

    assert run("uninstall", "--dry-run").output.endswith("\n- Namespace infra-vms\n")
    assert run("uninstall").output.endswith("uninstalled\n")
    assert api.objects == {}


def test_an_interrupted_removal_or_installation_is_found_again(api: InstallMemory) -> None:
    """The webhook configurations, which name the namespace, are deleted first and created last."""
    install("--namespace=infra-vms")
    for name in [name for name in api.objects if "webhookconfigurations" in name]:
        del api.objects[name]

    assert "not in other" in install("--namespace=other").stderr
    assert run("uninstall").output.endswith("uninstalled\n")
    assert api.objects == {}
    # A binding of others may have its name, and a user has no namespace.
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubevirt-webhook"
    api.put(path, {"kind": "ClusterRoleBinding", "subjects": [{"kind": "User", "name": "kubevirt-webhook"}]})
    assert install("--dry-run").exit_code == 0


def test_a_removal_that_timed_out_is_continued_in_another_namespace_too(api: InstallMemory) -> None:
    """It said that nothing was installed, while the namespace with the replicas was still there."""
    install("--namespace=infra-vms")
    path = "/api/v1/namespaces/infra-vms"
    ending = api.objects[path]["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    run("uninstall")
    api.put(path, {"apiVersion": "v1", "kind": "Namespace", "metadata": ending})
    apart = {"name": "apart", "labels": ending["labels"]}
    api.put("/api/v1/namespaces/apart", {"apiVersion": "v1", "kind": "Namespace", "metadata": apart})

    assert run("uninstall").output.endswith("\nuninstalled\n")
    # Of others that only look like one, none.
    assert list(api.objects) == ["/api/v1/namespaces/apart"]
    assert run("uninstall").output.endswith("is not installed\n")


def test_only_the_namespace_of_the_installation_is_deleted(api: InstallMemory, refused: Refused) -> None:
    """``-n`` is the namespace of the VMs in other commands."""
    install("--namespace=infra-vms")
    api.put("/api/v1/namespaces/shop", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    before = {**api.objects}

    refused(run("uninstall", "--namespace=shop"))
    assert api.objects == before
    run("uninstall", "--namespace=infra-vms")
    assert [*api.objects] == ["/api/v1/namespaces/shop"]
    # Of nothing that is installed, the namespace alone is left over.
    assert run("uninstall", "--namespace=shop").output == f"cluster: {CLUSTER}\nkubevirt-webhook is not installed\n"
    assert [*api.objects] == ["/api/v1/namespaces/shop"]


def test_a_namespace_that_another_tool_created_is_kept(installed: InstallMemory, golden: Golden) -> None:
    """Helm's chart has none: the admin creates it, and may have put other things there."""
    place = "/api/v1/namespaces/kubevirt-webhook"
    del installed.objects[place]["metadata"]["labels"]

    result = run("uninstall")
    assert result.exit_code == 0
    golden(result.stderr)
    assert [*installed.objects] == [place]


@pytest.mark.parametrize("command", ["install -n", "uninstall -n", "cleanup -n", "install --image"])
def test_an_empty_value_is_neither_every_namespace_nor_the_image_that_runs(
    installed: InstallMemory, command: str
) -> None:
    """``-n "$NAMESPACE"`` with an unset variable cleaned all namespaces."""
    result = run(*command.split(), "")
    assert (result.exit_code, "is a variable unset?" in result.stderr) == (2, True)


@pytest.mark.parametrize("body", [b"<html>", b"[" * 99999, b"null", b"[]", b'{"metadata": null}', b'{"a": "\xff"}'])
def test_another_server_than_an_api_server_is_told(api: InstallMemory, body: bytes) -> None:
    """Such as a proxy whose page asks for a password."""
    api.answers["GET", ""] = 200, body
    for command in ("install --image i", "uninstall", "hand-over --to-manager kubectl", "cleanup"):
        result = run(*command.split(), "--dry-run")
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "the answer holds no object of an API server; check the server" in result.stderr
    assert api.wrote == []


@pytest.mark.parametrize(
    ("overlay", "is_openshift", "place"),
    [
        *(("--overlay=openshift", False, "openshift-cnv"), ("", True, "openshift-cnv")),
        *(("--overlay=kubernetes", True, "kubevirt"), ("", False, "kubevirt")),
    ],
)
def test_the_overlay_is_that_of_the_cluster(api: InstallMemory, overlay: str, is_openshift: bool, place: str) -> None:
    if is_openshift:
        api.answers["GET", "/apis/config.openshift.io"] = 200, {}
    install(*overlay.split())
    entries = [entry for one in api.objects.values() for entry in one.get("webhooks", ())]
    assert entries
    assert all(place in entry["namespaceSelector"]["matchExpressions"][1]["values"] for entry in entries)


@pytest.mark.control("strangers-image")
def test_the_first_installation_needs_an_image(api: InstallMemory, golden: Golden) -> None:
    """No registry has an image of kubevirt-webhook: a made-up default would be installed and never start."""
    for arguments in ([], ["--dry-run"], ["--no-wait"]):
        result = run("install", *arguments)
        assert (result.exit_code, api.objects) == (2, {})
        assert "--image" in result.stderr
    golden(result.stderr)


def test_a_roll_out_that_hangs_is_no_success_though_nothing_is_left_to_change(installed: InstallMemory) -> None:
    installed.then = lambda _: None
    failed = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    installed.objects[DEPLOYMENT]["status"] = {"replicas": 3, "updatedReplicas": 1, "conditions": [failed]}

    # It may go on, since the cause may have been repaired before this run.
    again, dry = run("install", "--timeout=1"), run("install", "--dry-run")
    assert (again.exit_code, "timed out" in again.stderr) == (2, True)
    assert (dry.exit_code, dry.stderr.startswith("warning: the rollout ")) == (0, True)
    assert run("install", "--no-wait").output == NO_CHANGES


@pytest.mark.control("wrong-cluster")
def test_the_name_of_the_cluster_is_one_line(api: InstallMemory) -> None:
    api.cluster = 'context "a\nAre you sure? yes", https://prod'
    assert run("uninstall", "--dry-run").output.count("\n") == 2


def test_the_deployment_gives_up_before_we_do() -> None:
    (timeout,) = (one for one in installation.install.params if "--timeout" in one.opts)
    assert planned().deployment["spec"]["progressDeadlineSeconds"] < timeout.default


def test_a_cluster_that_gives_no_answer(api: InstallMemory, refused: Refused) -> None:
    api.answers["GET", "/apis/config.openshift.io"] = None
    refused(run("install"))


@pytest.mark.parametrize("content", [b"schedulrs: {}", b"\xff", None], ids=["unknown key", "bytes", "no file"])
def test_settings_with_mistakes_change_nothing(
    api: InstallMemory, tmp_path: Path, content: bytes | None, refused: Refused
) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_bytes(content)
    refused(install("--config", file))
    assert api.objects == {}


def refuse_on_terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions to a user who answers no."""
    asked: list[str] = []
    monkeypatch.setattr(click, "confirm", lambda question, **_: asked.append(question))
    monkeypatch.setattr(prompt, "is_on_terminal", lambda: True)
    return asked


@pytest.mark.control("fields-of-others")
def test_on_a_terminal_we_ask(api: InstallMemory, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    asked = refuse_on_terminal(monkeypatch)
    install()
    assert api.objects == {}
    assert len(asked) == 1
    golden(asked[0])
    install("--yes")
    assert api.objects
    run("uninstall")
    assert api.objects
    assert len(asked) == 2
    run("uninstall", "--yes")
    put_vm(api, "web")
    run("cleanup")
    assert len(asked) == 3
    assert all(CLUSTER in question for question in asked)


def test_uninstall_warns_of_pools_that_live_by_defaults(installed: InstallMemory, golden: Golden) -> None:
    pool: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "web"}, "spec": {}}
    installed.put("/apis/pool.kubevirt.io/v1beta1/namespaces/shop/virtualmachinepools/web", pool)
    metadata = put_vm(installed, "web-0")
    owner = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "web", "controller": True}
    metadata["ownerReferences"] = [owner]
    assert run("uninstall", "--dry-run").stderr == ""

    metadata["annotations"]["kubevirt-webhook.github.io/injected-instancetype"] = "A/b"
    golden(run("uninstall").stderr)


def put_vm(api: InstallMemory, name: str, **status: Any) -> Any:
    thing = vm({S: "kubevirt"}, {S: "kubevirt"}, "kubevirt", **status)
    thing["metadata"]["name"] = name
    api.put(VMS.format("shop", name), thing)
    return api.objects[VMS.format("shop", name)]["metadata"]


def test_cleanup(api: InstallMemory, golden: Golden) -> None:
    put_vm(api, "web")
    put_vm(api, "running", created=True)
    golden(run("cleanup", "--dry-run").output)
    assert api.wrote == []

    assert run("cleanup").output.endswith("cleaned 1/1 VM\n1 running VM keeps what is skipped above\n")
    assert run("cleanup", "--allow-restart-required").output.endswith("cleaned 1/1 VM\n")
    assert run("cleanup").output == f"cluster: {CLUSTER}\nno VM to clean\n"
    api.put("/api/v1/namespaces/shop/pods/one", {"metadata": {"annotations": {S: "kubevirt"}}})
    assert "\n0 VMIs and 1 launcher pod " in run("cleanup").output


def test_cleanup_tells_what_it_could_not_change(api: InstallMemory, golden: Golden) -> None:
    put_vm(api, "web")
    api.answers["PATCH", "/web"] = 422, {}
    result = run("cleanup")

    assert (result.exit_code, result.stdout.endswith("cleaned 0/1 VM\n")) == (1, True)
    golden(result.stderr)


def test_a_dry_run_of_cleanup_answers_while_we_are_called(installed: InstallMemory, golden: Golden) -> None:
    put_vm(installed, "web")
    result = run("cleanup", "--dry-run")
    assert (result.exit_code, installed.wrote) == (0, [])
    golden(result.output)


def test_cleanup_refuses_while_we_are_called(installed: InstallMemory, refused: Refused) -> None:
    put_vm(installed, "web")
    refused(run("cleanup"))
    assert installed.wrote == []


@pytest.mark.parametrize(
    ("name", "entry", "labels"),
    [
        # Those of a trial.
        (f"{names.FIRST_CONFIGURATION}-local", {"name": f"virtualmachines.scheduling.enforce.{names.DOMAIN}"}, {}),
        # Whatever their names, by what they call.
        ("theirs", {"name": "a.b.c", "clientConfig": {"url": f"https://192.0.2.1:8443{VM_PATH}"}}, {}),
        ("theirs", {"name": "a.b.c", "clientConfig": {"url": f"https://192.0.2.1/behind{VM_PATH}?timeout=3s"}}, {}),
        ("theirs", {"name": "a.b.c", "clientConfig": {"service": {"path": VM_PATH}}}, {}),
        ("theirs", {"name": "a.b.c"}, {"app.kubernetes.io/name": "kubevirt-webhook"}),
    ],
    ids=["trial", "url", "proxy", "service", "label"],
)
def test_cleanup_refuses_while_any_configuration_is_ours(
    api: InstallMemory, name: str, entry: dict[str, Any], labels: dict[str, str], refused: Refused
) -> None:
    put_vm(api, "web")
    own = {"metadata": {"name": name, "labels": labels}, "webhooks": [entry]}
    api.put(f"/apis/{API_VERSION}/mutatingwebhookconfigurations/{name}", own)
    refused(run("cleanup"))
    assert api.wrote == []


def test_cleanup_runs_beside_the_webhooks_of_others(api: InstallMemory) -> None:
    put_vm(api, "web")
    entry = {"name": "a.b.c", "clientConfig": {"service": {"path": "/mutate"}}}
    api.put(
        f"/apis/{API_VERSION}/mutatingwebhookconfigurations/theirs",
        {"metadata": {"name": "theirs"}, "webhooks": [entry]},
    )
    assert run("cleanup").output.endswith("cleaned 1/1 VM\n")


def test_cleanup_counts_no_vm_whose_change_a_webhook_undid(api: InstallMemory, golden: Golden) -> None:
    put_vm(api, "web")
    before = copy.deepcopy(api.objects)
    put_vm(api, "zoo")
    api.answers["PATCH", "/web"] = 200, before[VMS.format("shop", "web")]
    result = run("cleanup")

    assert (result.exit_code, result.stdout.endswith("cleaned 1/2 VMs\n")) == (1, True)
    golden(result.stderr)


@pytest.mark.parametrize("manager", ["argocd-controller", ""])
def test_cleanup_counts_no_vm_whose_change_another_program_undid(
    api: InstallMemory, manager: str, golden: Golden
) -> None:
    put_vm(api, "web")
    before = copy.deepcopy(api.objects[VMS.format("shop", "web")])
    if manager:
        owned = {
            "f:metadata": {"f:annotations": {f"f:{S}": {}}},
            "f:spec": {"f:template": {"f:spec": {"f:schedulerName": {}}}},
        }
        before["metadata"]["managedFields"] = [{"manager": manager, "operation": "Update", "fieldsV1": owned}]
    # Later than the answer to the change.
    api.then = lambda path: api.put(path, copy.deepcopy(before))
    answered = api._answer

    def answer(*request: Any) -> Any:
        status, found = answered(*request)
        return status, copy.deepcopy(found)

    api._answer = answer  # type: ignore[method-assign, assignment]
    result = run("cleanup")

    assert (result.exit_code, result.stdout.endswith("cleaned 0/1 VM\n")) == (1, True)
    golden(result.stderr)


def test_install_says_where_the_api_server_does_not_reach_the_replicas(
    api: InstallMemory, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortage, "PAUSE", 0.0)
    why = "dial tcp 10.1.2.3:8443: timeout"
    api.answers["GET", "/proxy/healthz"] = (503, {"kind": "Status", "reason": "ServiceUnavailable", "message": why})
    first = install()

    golden(first.stderr)
    assert first.stdout.endswith("installed\n")
    assert (run("install").stderr, run("install", "--no-wait").stderr) == (first.stderr, "")


@pytest.mark.parametrize("answer", [(403, {"kind": "Status", "reason": "Forbidden"}), None], ids=["denied", "none"])
def test_install_is_silent_where_it_cannot_know_whether_the_replicas_are_reached(
    api: InstallMemory, answer: tuple[int, Any] | None
) -> None:
    api.answers["GET", "/proxy/healthz"] = answer
    assert install().stderr == ""


def pods(image: str) -> dict[str, Any]:
    """A list of one pod, that of a scheduler."""
    return {"items": [{"spec": {"containers": [{"name": "kube-scheduler", "image": image}]}}]}


@pytest.fixture
def scheduler_api(installed: InstallMemory) -> InstallMemory:
    """The same in a cluster whose own scheduler can be seen."""
    installed.answers["GET", "/version"] = 200, {"gitVersion": "v1.36.3+rke2r1"}
    installed.answers["GET", "/kube-system/pods"] = 200, pods(IMAGE)
    installed.answers["GET", "/openshift-kube-scheduler/pods"] = 200, {"items": []}
    return installed


def test_it_comes_when_it_is_asked_for_and_stays_until_it_is_uninstalled(scheduler_api: InstallMemory) -> None:
    assert SCHEDULER_DEPLOYMENT not in scheduler_api.objects

    shown = install("--with=scheduler", "--dry-run").output
    assert "+ Deployment kubevirt-scheduler/kubevirt-scheduler" in shown
    assert install("--with=scheduler").output.endswith("installed\n")
    assert image(scheduler_api, SCHEDULER_DEPLOYMENT) == IMAGE
    assert install().output.endswith("no changes\n")
    assert install("--with=scheduler").output.endswith("no changes\n")

    assert "- Namespace kubevirt-scheduler" in run("uninstall", "--dry-run").output
    run("uninstall")
    assert scheduler_api.objects == {}
    # Its dependencies are created before its pods, and removed after them.
    wrote = [one for one in scheduler_api.wrote if "scheduler" in one]
    assert wrote[0] == f"PATCH {NAMESPACE}"
    assert wrote[-1] == f"DELETE {NAMESPACE}"


def test_an_upgrade_of_the_cluster_brings_another_image_and_starts_anew(scheduler_api: InstallMemory) -> None:
    install("--with=scheduler", "--scheduler-variant=pack")
    scheduler_api.answers["GET", "/kube-system/pods"] = 200, pods("x:v1.37.0")
    assert install().output.endswith("no changes\n")

    assert "+        image: x:v1.37.0" in install("--with=scheduler").output
    assert "MostAllocated" in scheduler_api.objects[CONFIG_MAP]["data"]["config.yaml"]
    assert "configuration-digest" in install("--with=scheduler", "--scheduler-variant=spread").output
    assert "LeastAllocated" in scheduler_api.objects[CONFIG_MAP]["data"]["config.yaml"]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        *(("here/kube-scheduler", ":v1.36.3"), ("here:5000/kube-scheduler", ":v1.36.3")),
        *(("here:5000/kube-scheduler:v1.36.1", ""), ("here/kube-scheduler@sha256:0123", "")),
        *(("here/kube-scheduler:mine", ""), ("here/kube-scheduler:v0.36.1", "")),
    ],
)
def test_an_image_of_the_admins_own(scheduler_api: InstallMemory, given: str, added: str) -> None:
    install("--with=scheduler", f"--scheduler-image={given}")
    assert image(scheduler_api, SCHEDULER_DEPLOYMENT) == given + added


LOAD_AWARE = "--with=scheduler --scheduler-variant=load-aware"
# The cluster's version, without the suffix of a distribution.
SUGGESTED = "kube-scheduler:v1.36.3\n"
UNSEEN: list[Any] = [(403, {"message": "forbidden"}), (200, {"items": []}), (200, b"nonsense")]
UNKNOWN: list[Any] = [(200, {"gitVersion": "one"}), (500, {}), None]


@pytest.mark.parametrize(
    ("arguments", "path", "answer", "said"),
    [
        ("--with=scheduler --scheduler-image=a/b:v1.35.0", "", None, "Error: --scheduler-image: "),
        ("--with=scheduler --scheduler-image=a/b:v0.35.4", "", None, '"a/b:v0.35.4" is kube-scheduler 1.35, but'),
        ("--with=scheduler --scheduler-variant=load-aware", "", None, "a release 0.36 for Kubernetes 1.36"),
        (f"{LOAD_AWARE} --scheduler-image=a/b", "", None, "name a release 0.36 of scheduler-plugins"),
        ("--with=scheduler --prometheus=http://p", "", None, "Error: --prometheus: "),
        ("--scheduler-variant=pack", "", None, "Error: install: "),
        # Where no scheduler can be seen, its image must be given.
        *(("--with=scheduler", "/kube-system/pods", answer, SUGGESTED) for answer in UNSEEN),
        *(("--with=scheduler", "/version", answer, "Error: ") for answer in UNKNOWN),
    ],
)
def test_what_does_not_fit_changes_nothing(
    scheduler_api: InstallMemory, arguments: str, path: str, answer: tuple[int, Any] | None, said: str
) -> None:
    if path:
        scheduler_api.answers["GET", path] = answer
    result = install(*arguments.split())
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert said in result.stderr
    assert SCHEDULER_DEPLOYMENT not in scheduler_api.objects


def test_a_load_aware_scheduler_has_an_image_of_its_own_and_may_read_metrics(scheduler_api: InstallMemory) -> None:
    # As the project scheduler-plugins numbers its releases.
    chosen = ("--scheduler-variant=load-aware", "--scheduler-image=here/kube-scheduler:v0.36.2")
    install("--with=scheduler", *chosen, "--prometheus=http://p:9090")

    (role,) = (one for path, one in scheduler_api.objects.items() if path.endswith("/clusterroles/kubevirt-scheduler"))
    assert "metrics.k8s.io" in {group for rule in role["rules"] for group in rule["apiGroups"]}
    assert image(scheduler_api, SCHEDULER_DEPLOYMENT) == "here/kube-scheduler:v0.36.2"
    assert 'address: "http://p:9090"' in scheduler_api.objects[CONFIG_MAP]["data"]["config.yaml"]
    assert install().output.endswith("no changes\n")


@pytest.mark.control("scheduler-of-another-admin")
def test_another_scheduler_in_its_place_is_left_alone(scheduler_api: InstallMemory) -> None:
    scheduler_api.put(NAMESPACE, {"kind": "Namespace", "metadata": {"name": "kubevirt-scheduler"}})
    result = install("--with=scheduler")
    assert (result.exit_code, SCHEDULER_DEPLOYMENT in scheduler_api.objects) == (2, False)
    assert result.stderr.startswith("Error: Namespace kubevirt-scheduler: ")
    run("uninstall")
    assert list(scheduler_api.objects) == [NAMESPACE]


def test_one_that_kustomize_has_applied_is_kustomizes(scheduler_api: InstallMemory) -> None:
    for one in yaml.safe_load_all((MANIFESTS / "rendered" / "scheduler-spread.yaml").read_text()):
        scheduler_api.put(path(one), one)
    before = dict(scheduler_api.objects)
    assert install().output.endswith("no changes\n")
    assert scheduler_api.objects == before


@pytest.mark.control("scheduler-still-needed")
def test_it_is_kept_while_somebody_would_wait_for_it(scheduler_api: InstallMemory) -> None:
    install("--with=scheduler")
    place, vmi = VMS.format("shop", "web"), "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web"
    scheduler_api.put(place, vm({}, {}, "kubevirt"))
    scheduler_api.put(vmi, {"metadata": {"name": "web"}, "spec": {"schedulerName": "kubevirt"}})
    # Its template has no schema.
    scheduler_api.put(VMS.format("shop", "odd"), {"metadata": {"name": "odd"}, "spec": {"template": [1]}})

    result = run("uninstall")

    assert "1 VM, 1 VMI and 0 waiting pods" in result.stderr
    assert SCHEDULER_DEPLOYMENT in scheduler_api.objects
    assert not any("webhookconfigurations" in path for path in scheduler_api.objects)

    del scheduler_api.objects[place], scheduler_api.objects[vmi]
    assert run("uninstall").output.endswith("uninstalled\n")
    assert not any("scheduler" in path for path in scheduler_api.objects)


def test_on_openshift_the_cluster_chooses_the_user(scheduler_api: InstallMemory) -> None:
    scheduler_api.objects.clear()
    install("--with=scheduler", "--overlay=openshift")
    template = scheduler_api.objects[SCHEDULER_DEPLOYMENT]["spec"]["template"]
    assert "runAsUser" not in template["spec"]["securityContext"]
    assert template["metadata"]["annotations"]["openshift.io/required-scc"] == "restricted-v2"


def test_what_a_newer_scheduler_must_list_is_granted_until_the_manifests_know_it(scheduler_api: InstallMemory) -> None:
    """Kubernetes 1.37 was such a version: without the new kind, its scheduler ran and placed nothing."""
    rules = [{"apiGroups": ["resource.k8s.io"], "resources": ["devicepools"], "verbs": ["get", "list", "watch"]}]
    upstream = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
    scheduler_api.objects[f"{role}system:kube-scheduler"] = upstream | {"metadata": {"name": "system:kube-scheduler"}}

    done = install("--with=scheduler")
    assert "list devicepools.resource.k8s.io, watch devicepools.resource.k8s.io" in done.stderr
    added = {"apiGroups": ["resource.k8s.io"], "resources": ["devicepools"], "verbs": ["list", "watch"]}
    assert scheduler_api.objects[f"{role}kubevirt-scheduler"]["rules"][-1] == added
    # It stays granted where the scheduler is not mentioned.
    assert install().output.endswith("no changes\n")


def own(api: InstallMemory, manager: str) -> None:
    entry = {"manager": manager, "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {"f:spec": {}}}
    metadata = {**HAND_OVER_DEPLOYMENT["metadata"], "managedFields": [entry]}
    api.put(path(HAND_OVER_DEPLOYMENT), {**HAND_OVER_DEPLOYMENT, "metadata": metadata})


def owners(api: InstallMemory) -> list[str]:
    return [one["manager"] for one in api.objects[path(HAND_OVER_DEPLOYMENT)]["metadata"]["managedFields"]]


def test_it_is_shown_and_then_done(api: InstallMemory, golden: Golden) -> None:
    api.cluster = InstallMemory().cluster
    own(api, "kubevirt-webhook-install")

    shown = run("hand-over", "--to-manager=kubectl", "--dry-run").output
    assert owners(api) == ["kubevirt-webhook-install"]
    done = run("hand-over", "--to-manager=kubectl").output

    assert owners(api) == ["kubectl"]
    assert done == f"{shown}handed over 1 object\n"
    golden(run("hand-over", "--to-manager=kubectl").output)
    # A tool cannot hand over to itself.
    assert run("hand-over", "--from-manager=kubectl", "--to-manager=kubectl").exit_code == 2


@pytest.mark.control("hand-over-of-the-wrong-cluster")
def test_every_run_and_the_question_name_the_cluster(api: InstallMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    api.cluster = 'context "prod\nyes", https://prod'
    own(api, "kubevirt-webhook-install")
    asked = refuse_on_terminal(monkeypatch)

    shown = run("hand-over", "--to-manager=kubectl", "--dry-run").output
    done = run("hand-over", "--to-manager=kubectl").output

    assert shown == done
    assert shown.startswith("cluster: context ")
    assert shown.count("\n") == 2
    assert owners(api) == ["kubevirt-webhook-install"]
    assert ["https://prod" in question for question in asked] == [True]
