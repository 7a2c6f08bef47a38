"""The bundle for OLM is what `install` plans; what differs is listed here."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import bundle
from webhook.install import plan
from webhook.install.registration import RegistrationTarget, configurations
from webhook.settings.file import parse

MANIFESTS = bundle.ROOT / "manifests"
IMAGE = "registry.example/kubevirt-webhook@sha256:" + "a" * 64
OWN = plan.config_map(MANIFESTS, "kubernetes")["data"][plan.SETTINGS_KEY]
PLANNED = plan.of(MANIFESTS, "kubernetes", OWN, "settings", IMAGE)
# What a label's value holds, and what fits before the five characters that the API server appends to a generateName.
LABEL = 63
# The kinds that operator-registry accepts (supportedResources of pkg/lib/bundle), of those that `install` makes.
SUPPORTED = {"ConfigMap", "Service", "PodDisruptionBudget", "PriorityClass"}


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    texts = bundle.files(IMAGE, {"Ann": "ann@example.com"})
    return {name: yaml.safe_load(text) for name, text in texts.items() if name.endswith(".yaml")}


@pytest.fixture(scope="module")
def spec(made: dict[str, Any]) -> Any:
    return made["manifests/kubevirt-webhook.clusterserviceversion.yaml"]["spec"]


def test_the_replicas_and_their_rights_are_those_of_install(spec: Any) -> None:
    (deployment,) = spec["install"]["spec"]["deployments"]
    expected = deepcopy(PLANNED.deployment["spec"])
    pod, other = expected["template"]["spec"], deployment["spec"]["template"]["spec"]
    # The SCC of OpenShift chooses them, and a ConfigMap of the admin's own covers the bundle's.
    assert (pod["securityContext"].pop("runAsUser"), pod["securityContext"].pop("runAsGroup")) == (65532, 65532)
    del pod["volumes"]
    sources = other.pop("volumes")[0]["projected"]["sources"]
    assert [source["configMap"]["name"] for source in sources] == ["kubevirt-webhook-defaults", "kubevirt-webhook"]
    assert sources[1]["configMap"]["optional"]
    arguments = pod["containers"][0].pop("args")
    where = "/apiserver.local.config/certificates/apiserver"
    mounted = ["--tls=mounted", f"--tls-cert={where}.crt", f"--tls-key={where}.key"]
    assert other["containers"][0].pop("args") == [*arguments[:-1], *mounted]
    assert arguments[-1] == "--tls=managed"
    assert deployment["spec"] == expected

    (role,) = (one for one in PLANNED.before if one["kind"] == "ClusterRole" and one["metadata"]["name"] == bundle.NAME)
    # None in a namespace, which OLM would grant in all of them; none on webhook configurations.
    permissions = [{"serviceAccountName": pod["serviceAccountName"], "rules": role["rules"]}]
    assert spec["install"]["spec"] == {"clusterPermissions": permissions, "deployments": [deployment]}


def test_the_objects_beside_it_are_those_of_install_in_no_namespace(made: dict[str, Any]) -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in made.values() if one.get("kind") in SUPPORTED}
    defaults = found.pop(("ConfigMap", "kubevirt-webhook-defaults"))
    assert defaults["data"] == {plan.SETTINGS_KEY: OWN}
    expected = deepcopy([one for one in PLANNED.before if one["kind"] in SUPPORTED - {"ConfigMap"}])
    for one in expected:
        one["metadata"].pop("namespace", None)
    assert found == {(one["kind"], one["metadata"]["name"]): one for one in expected}
    assert "namespace" not in defaults["metadata"]
    assert len(made) == len(found) + 3


def test_the_webhooks_are_those_of_install_by_the_endpoint_that_has_every_mode(spec: Any) -> None:
    settings = parse(b'{"events": "on", "scheduling": {"virtualMachineInstances": true}}', "settings")
    entries = {
        (one["kind"].replace("WebhookConfiguration", ""), entry["clientConfig"]["service"]["path"]): entry
        for one in configurations(settings, RegistrationTarget(only_ignore=True))
        for entry in one["webhooks"]
        if ".enforce." in entry["name"] and "eviction" not in entry["name"]
    }
    webhooks = spec["webhookdefinitions"]
    found = {(one["type"].replace("AdmissionWebhook", ""), one["webhookPath"]): one for one in webhooks}
    assert found.keys() == entries.keys()
    without = {"name", "clientConfig", "namespaceSelector", "matchConditions"}
    for place, entry in entries.items():
        kept = {field: value for field, value in entry.items() if field not in without}
        assert kept.items() <= found[place].items()
        assert kept["failurePolicy"] == "Ignore"
    (container,) = PLANNED.deployment["spec"]["template"]["spec"]["containers"]
    listens = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {(one["containerPort"], one["targetPort"]) for one in webhooks} == {(listens["webhooks"],) * 2}


def test_the_api_server_calls_them_in_the_order_of_install(spec: Any) -> None:
    """OLM makes a configuration of each, named after it."""
    mutating = [one for one in spec["webhookdefinitions"] if one["type"].startswith("Mutating")]
    names = [one["generateName"] for one in mutating]
    assert names == sorted(names)
    places = ["/".join(one["webhookPath"].split("/")[2:4]) for one in mutating]
    assert places.index("instancetypes/virtualmachines") < places.index("scheduling/virtualmachines")
    for one in spec["webhookdefinitions"]:
        name = one["generateName"]
        assert len(name) <= LABEL, "OLM writes it into a label"
        assert name.count(".") >= 2, "the API server accepts no shorter name"
        is_last = one["webhookPath"].startswith("/mutate") and one["rules"][0]["resources"] == ["pods"]
        assert (name > "virt-api-mutator") is is_last
        # OLM accepts no rule on all groups, nor on its own.
        assert not {"*", "operators.coreos.com"} & {group for rule in one["rules"] for group in rule["apiGroups"]}


def test_a_catalog_reads_one_package_with_one_channel(made: dict[str, Any], tmp_path: Path) -> None:
    bundle.main([f"--image={IMAGE}", f"--output={tmp_path}", "--maintainer=Ann=ann@example.com"])
    annotations = made["metadata/annotations.yaml"]["annotations"]
    labels = [line.removeprefix("LABEL ") for line in (tmp_path / "bundle.Dockerfile").read_text().splitlines()]
    assert labels[1:-2] == [f"{key}={value}" for key, value in annotations.items()]
    assert {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()} == {
        *made,
        "bundle.Dockerfile",
    }
    csv = yaml.safe_load((tmp_path / "manifests" / "kubevirt-webhook.clusterserviceversion.yaml").read_text())
    assert csv["spec"]["maintainers"] == [{"name": "Ann", "email": "ann@example.com"}]
    assert csv["spec"]["installModes"] == [{"type": "AllNamespaces", "supported": True}]
