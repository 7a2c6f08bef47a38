"""The manifests that are shipped: the permissions of the container, and the roles that docs/migration.md offers.

The roles are as the code requires them, and grant nothing else."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.support.manifests import parse
from webhook import names
from webhook.install import stored_settings
from webhook.placement.machines import CLAIMS, VOLUMES
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES
from webhook.policies.migration.virtualmachineinstancemigrations import PIN_RESOURCE, PIN_VERB
from webhook.server.page.views import PATH

ROOT = Path(__file__).parents[2]
RENDERED = sorted((ROOT / "manifests" / "rendered").glob("*.yaml"))
DOCKERFILE = (ROOT / "Dockerfile").read_text()
each_manifest = pytest.mark.parametrize("file", RENDERED, ids=lambda file: file.stem)


@cache
def pod_of(file: Path) -> tuple[Any, Any]:
    (pod,) = (one["spec"]["template"]["spec"] for one in parse(file.read_text()) if one["kind"] == "Deployment")
    (container,) = pod["containers"]
    return pod, container


@pytest.mark.control("container-only-serves")
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


@pytest.mark.control("outage-blocks-the-cluster")
@each_manifest
def test_it_runs_on_the_stock_scheduler(file: Path) -> None:
    """The pod must not wait for the scheduler that the webhook injects, since that one may wait for the webhook."""
    assert pod_of(file)[0].get("schedulerName", "default-scheduler") == "default-scheduler"


@pytest.mark.control("strangers-image")
@each_manifest
def test_no_manifest_names_an_image_that_a_registry_could_have(file: Path) -> None:
    """A cluster must not run an image that a stranger pushes under the name of a placeholder."""
    assert not re.fullmatch(r"[\w][\w.-]{0,127}", pod_of(file)[1]["image"].rpartition(":")[2])


@pytest.mark.control("group-root-and-shells")
def test_it_is_in_no_group_of_root() -> None:
    """A kubelet takes the user of the image, and not its group."""
    ((user, group),) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    context = pod_of(ROOT / "manifests" / "rendered" / "kubernetes.yaml")[0]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))
    assert context["runAsGroup"] > 0


@pytest.mark.control("group-root-and-shells")
def test_on_openshift_the_scc_chooses_user_and_group() -> None:
    for part in pod_of(ROOT / "manifests" / "rendered" / "openshift.yaml"):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & part["securityContext"].keys()


@pytest.mark.control("container-only-serves")
def test_the_image_starts_the_program_and_no_shell() -> None:
    last = DOCKERFILE.split("\nFROM ")[-1]
    commands = dict(re.findall(r"^(ENTRYPOINT|CMD|USER|RUN) (.*)$", last, re.MULTILINE))
    assert commands.pop("CMD").startswith("[")
    assert commands == {"ENTRYPOINT": '["/app/bin/kubevirt-webhook"]', "USER": "65532:65532"}


def load(name: str) -> list[Any]:
    return list(yaml.safe_load_all((ROOT / "manifests" / "roles" / f"{name}.yaml").read_text()))


ROLES: dict[str, Any] = {role["metadata"]["name"].partition(":")[2]: role for role in load("migrate")}


def granted(role: Any) -> set[tuple[str, str, str]]:
    parts = [[rule[key] for key in ("apiGroups", "resources", "verbs")] for rule in role["rules"]]
    return {(group, resource, verb) for each in parts for group, resource, verb in product(*each)}


def test_each_role_grants_what_its_name_says() -> None:
    assert ROLES.keys() == {"choose-nodes", "migrate", "explain", "explain-nodes"}
    assert granted(ROLES["choose-nodes"]) == {(names.DOMAIN, PIN_RESOURCE, PIN_VERB)}
    # Nothing that hides who asks.
    migrations = (names.KUBEVIRT_GROUP, "virtualmachineinstancemigrations")
    assert {grant[:2] for grant in granted(ROLES["migrate"])} == {migrations}
    for name in ("explain", "explain-nodes"):
        assert {verb for _, _, verb in granted(ROLES[name])} <= {"get", "list"}
    # Of the default one `explain vm` reads whether it exists, as the server does.
    classes = (PRIORITY_CLASSES.group, PRIORITY_CLASSES.plural)
    assert {(*classes, verb) for verb in ("get", "list")} <= granted(ROLES["explain-nodes"])
    settings = [rule for rule in ROLES["explain-nodes"]["rules"] if "configmaps" in rule["resources"]]
    assert [rule.get("resourceNames") for rule in settings] == [[stored_settings.NAME]]


@pytest.mark.control("account-reads-too-much")
def test_no_role_says_everything() -> None:
    for role in ROLES.values():
        assert (role["apiVersion"], role["kind"]) == ("rbac.authorization.k8s.io/v1", "ClusterRole")
        assert role["metadata"]["name"].startswith("kubevirt-webhook:")
        assert not any("*" in part for grant in granted(role) for part in grant)


@pytest.mark.control("page-shows-everything")
def test_the_page_is_got_and_no_resource_with_it() -> None:
    (role,) = load("page")
    assert role["rules"] == [{"nonResourceURLs": [PATH], "verbs": ["get"]}]


@pytest.mark.control("permissions-for-layers", "takeover-reads-secrets")
def test_pull_secrets_are_read_by_name_in_one_namespace() -> None:
    role, binding = load("pull-secrets")
    name = role["metadata"]["name"]
    assert (role["kind"], binding["kind"], binding["roleRef"]["name"]) == ("Role", "RoleBinding", name)
    assert granted(role) == {("", "secrets", "get")}
    assert all(rule["resourceNames"] for rule in role["rules"])


@pytest.mark.control("volumes-in-explanations")
def test_volumes_are_only_read_by_name() -> None:
    """As the placement of a VM reads them: it lists no claims, and no Secret comes with a volume."""
    role, binding = load("volumes")
    assert granted(role) == {(each.group, each.plural, "get") for each in (CLAIMS, VOLUMES)}
    name = role["metadata"]["name"]
    assert (binding["roleRef"]["name"], binding["subjects"][0]["name"]) == (name, "kubevirt-webhook")


def test_the_example_binds_kubevirts_role_in_one_namespace_and_admins_get_what_migrating_takes() -> None:
    binding, for_admins = load("bindings")
    assert (binding["kind"], binding["roleRef"]["name"]) == ("RoleBinding", "kubevirt.io:migrate")
    assert [subject["kind"] for subject in binding["subjects"]] == ["Group"]
    assert for_admins["metadata"]["labels"] == {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}
    virtctl = {("subresources.kubevirt.io", "virtualmachines/migrate", "update")}
    assert granted(for_admins) == granted(ROLES["migrate"]) | virtctl
