from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.support.manifests import parse
from tests.golden_files import Golden
from tests.install.memory import HEALTH_CHECK, MANIFESTS, planned
from webhook.errors import InputError
from webhook.install import plan
from webhook.install.plan import DIGEST_ANNOTATION, Overlay, shipped
from webhook.k8s.yaml_documents import read_documents

OVERLAYS: list[Overlay] = ["kubernetes", "openshift"]


def annotations_of(manifest: Any) -> Any:
    return manifest["spec"]["template"]["metadata"]["annotations"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_its_own_settings_make_what_was_rendered(overlay: Overlay) -> None:
    own = plan.config_map(MANIFESTS, overlay)
    made = planned(own["data"]["settings.yaml"], overlay, "kubevirt-webhook:{IMAGE}")
    rendered = parse((MANIFESTS / "rendered" / f"{overlay}.yaml").read_text())
    annotations_of(made.deployment).pop(DIGEST_ANNOTATION)
    planned_by_title, rendered_by_title = (
        {plan.title(one): one for one in each} for each in (made.manifests, rendered)
    )
    titles = sorted(planned_by_title.keys() | rendered_by_title.keys())
    differing = [title for title in titles if planned_by_title.get(title) != rendered_by_title.get(title)]
    assert differing == [], "run make manifests"
    assert len(made.manifests) == len(rendered) == len(titles)


def test_what_needs_another_comes_after_it() -> None:
    kinds = [one["kind"] for one in planned().manifests]
    assert kinds[0] == "Namespace"
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")
    assert kinds.index("PriorityLevelConfiguration") < kinds.index("FlowSchema")
    assert kinds[-4:] == ["Deployment", *["MutatingWebhookConfiguration"] * 2, "ValidatingWebhookConfiguration"]


def test_paths() -> None:
    paths = {plan.title(one): plan.path(one) for one in planned().manifests}

    assert paths["Namespace kubevirt-webhook"] == "/api/v1/namespaces/kubevirt-webhook"
    assert paths["PriorityClass kubevirt-webhook"] == "/apis/scheduling.k8s.io/v1/priorityclasses/kubevirt-webhook"
    assert paths["NetworkPolicy kubevirt-webhook/kubevirt-webhook"] == (
        "/apis/networking.k8s.io/v1/namespaces/kubevirt-webhook/networkpolicies/kubevirt-webhook"
    )
    assert plan.path(planned().deployment, collection=True) == "/apis/apps/v1/namespaces/kubevirt-webhook/deployments"


def test_settings_image_and_grace_are_in_it() -> None:
    text = f"{HEALTH_CHECK}server: {{shutdownSeconds: 60}}\n"
    made = planned(text)
    (config,) = (one for one in made.before if one["kind"] == "ConfigMap")
    pod = made.deployment["spec"]["template"]["spec"]

    assert config["data"] == {"settings.yaml": text}
    assert (pod["containers"][0]["image"], pod["terminationGracePeriodSeconds"]) == ("here", 80)
    digests = {annotations_of(each.deployment)[DIGEST_ANNOTATION] for each in (made, planned())}
    assert len(digests) == 2


@pytest.mark.control("takeover-moves-vms")
@pytest.mark.parametrize(
    ("text", "components"),
    [
        *(("", set()), ("instancetypes: {fidelityCheck: {sample: 3}}", {"fidelity"}), ("events: true", {"events"})),
        ("preemption: {requestMigrations: true}", {"preemption"}),
        *(("admin: {listen: '0.0.0.0:8090'}", {"admin"}), ("admin: {listen: '127.0.0.1:8090'}", set())),
        ("driftScan: {everyMinutes: 30}", {"drift", "policyreports"}),
        ("driftScan: {everyMinutes: 30, policyReports: false}", {"drift"}),
    ],
)
def test_rights_come_and_go_with_the_settings_that_need_them(text: str, components: set[str]) -> None:
    made = planned(f"{HEALTH_CHECK}{text}\n")
    all_of_them = {file.parent.name for file in MANIFESTS.glob("components/*/rbac.yaml")}
    wanted, unwanted = ({plan.title(one) for one in each} for each in (made.manifests, made.unwanted))

    assert {one for one in all_of_them if f"ClusterRole kubevirt-webhook-{one}" in wanted} == components
    left = all_of_them - components
    kinds = ("ClusterRole", "ClusterRoleBinding")
    assert unwanted == {f"{kind} kubevirt-webhook-{component}" for kind in kinds for component in left}
    assert not wanted & unwanted


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("webhooks: {service: {name: other}}", "webhooks.service.name"),
        ("webhooks: {service: {port: 8443}}", "webhooks.service.port"),
        ("tls: {secretName: other}", "tls.secretName"),
        ("server: {listen: '0.0.0.0:9443'}", "server.listen"),
        ("server: {opsListen: '0.0.0.0:9080'}", "server.opsListen"),
        ("schedulr: {}", "schedulr"),
    ],
)
def test_settings_that_the_manifests_have_no_place_for(text: str, key: str, golden: Golden) -> None:
    with pytest.raises(InputError) as caught:
        planned(text)
    assert key in str(caught.value)
    golden(str(caught.value))


def test_openshift_must_be_told_where_kubevirt_is(golden: Golden) -> None:
    with pytest.raises(InputError) as caught:
        planned(overlay="openshift")
    golden(str(caught.value))
    elsewhere = planned(f"{HEALTH_CHECK}kubevirt: {{namespace: kubevirt-hyperconverged}}", "openshift")
    assert "kubevirt-hyperconverged" in str(elsewhere.configurations)


def opened(text: str) -> tuple[list[Any], list[Any]]:
    by_kind = {one["kind"]: one["spec"] for one in planned(f"{HEALTH_CHECK}{text}\n").before if "spec" in one}
    return by_kind["Service"]["ports"], by_kind["NetworkPolicy"]["ingress"]


def test_the_admin_listener_has_a_port_where_others_may_ask() -> None:
    ports, rules = opened("admin: {listen: '0.0.0.0:8091'}")
    assert ports[-1] == {"name": "admin", "port": 8091, "targetPort": 8091, "protocol": "TCP"}
    assert rules[-1] == {"ports": [{"port": 8091, "protocol": "TCP"}]}

    ports, rules = opened("admin: {listen: '0.0.0.0:8090'}")
    component = yaml.safe_load((MANIFESTS / "components" / "admin" / "kustomization.yaml").read_text())
    assert [ports[-1], rules[-1]] == [yaml.safe_load(one["patch"])[0]["value"] for one in component["patches"]]


def test_scores_for_layers_have_a_port_a_client_ca_and_a_cache() -> None:
    clients = "clientCaFile: /etc/kubevirt-webhook-layers/ca.crt, clientNames: [x]"
    text = f"layers: {{listen: '0.0.0.0:8447', {clients}}}"
    pod = planned(f"{HEALTH_CHECK}{text}\n").deployment["spec"]["template"]["spec"]
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}

    assert opened(text)[0][-1] == {"name": "layers", "port": 8447, "targetPort": 8447, "protocol": "TCP"}
    assert [volume["name"] for volume in pod["volumes"]] == ["settings", "layers-clients", "layers-cache"]
    assert mounts["layers-clients"] == "/etc/kubevirt-webhook-layers"
    # No client outside of the pod reaches a loopback address.
    alone = planned(f"{HEALTH_CHECK}layers: {{listen: '127.0.0.1:8446'}}\n")
    assert alone.deployment["spec"]["template"]["spec"]["volumes"] == pod["volumes"][:1]


def test_everything_is_in_all_overlays() -> None:
    all_of_it = [plan.title(one) for one in plan.everything(MANIFESTS)]
    assert len(all_of_it) == len(set(all_of_it))
    assert all_of_it[:2] == ["Namespace kubevirt-webhook", "Secret kubevirt-webhook/kubevirt-webhook-ca"]
    own = plan.config_map(MANIFESTS, "openshift")["data"]["settings.yaml"]
    some = planned(f"{own}instancetypes: {{fidelityCheck: {{sample: 3}}}}\n", "openshift")
    assert {plan.title(one) for one in (*some.manifests, *some.unwanted)} < set(all_of_it)


ELSEWHERE = "infra-vms"
IN_ELSEWHERE = f"webhooks: {{service: {{namespace: {ELSEWHERE}}}}}\n"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_follows_the_namespace_of_the_settings(overlay: Overlay) -> None:
    kubevirt = "kubevirt: {namespace: openshift-cnv}\n" if overlay == "openshift" else ""
    more = 'admin: {listen: "0.0.0.0:8090"}\nevents: "on"\n'
    made = planned(f"{HEALTH_CHECK}{IN_ELSEWHERE}{kubevirt}{more}", overlay).manifests
    text = yaml.safe_dump_all(made)

    assert plan.title(made[0]) == f"Namespace {ELSEWHERE}"
    assert {one["metadata"].get("namespace", ELSEWHERE) for one in made} == {ELSEWHERE}
    assert "namespace: kubevirt-webhook" not in text
    assert "kubevirt-webhook.kubevirt-webhook" not in text
    # The API server never asks the replicas about their own namespace.
    for entry in (entry for one in made[-3:] for entry in one["webhooks"]):
        assert entry["clientConfig"]["service"]["namespace"] == ELSEWHERE
        assert any(ELSEWHERE in each["values"] for each in entry["namespaceSelector"]["matchExpressions"][1:])
    own = {plan.title(one) for one in plan.everything(MANIFESTS, ELSEWHERE)}
    assert {*map(plan.title, made), f"Secret {ELSEWHERE}/kubevirt-webhook-ca"} <= own


@pytest.mark.parametrize("component", ["cert-manager/certificate", "monitoring/alerts"])
def test_certificates_and_alerts_follow_too(component: str) -> None:
    text = yaml.safe_dump(plan.in_namespace(shipped(MANIFESTS / "components" / f"{component}.yaml"), ELSEWHERE))
    assert ELSEWHERE in text
    assert "kubevirt-webhook.kubevirt-webhook" not in text
    assert "serviceaccount:kubevirt-webhook:" not in text
    assert "-n kubevirt-webhook" not in text


@pytest.mark.parametrize("text", [HEALTH_CHECK, "{}", IN_ELSEWHERE, f"{HEALTH_CHECK}\n\n{IN_ELSEWHERE}"])
def test_settings_get_the_namespace_that_they_lack(text: str) -> None:
    found = plan.settings_in(text, "settings.yaml", ELSEWHERE)
    assert found.count(ELSEWHERE) == 1
    assert plan.settings_in(found, "settings.yaml", ELSEWHERE) == found


@pytest.mark.parametrize(
    "text", ["webhooks: {timeoutSeconds: 2}\n", "{schedulers: {}}", IN_ELSEWHERE.replace("infra", "x")]
)
def test_settings_of_another_namespace_are_a_mistake(text: str) -> None:
    with pytest.raises(InputError, match=r"webhooks\.service\.namespace is not infra-vms"):
        plan.settings_in(text, "settings.yaml", ELSEWHERE)


# -- files that are shipped --------------------------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    files: list[Path] = []

    def noted(file: Path) -> Any:
        files.append(file)
        return read_documents(file)

    monkeypatch.setattr(plan, "read_documents", noted)
    return files


def test_a_file_is_parsed_once_until_it_changes_and_nobody_sees_what_others_change(
    tmp_path: Path, parsed: list[Path]
) -> None:
    file, other = tmp_path / "objects.yaml", tmp_path / "other.yaml"
    file.write_text("kind: Role\nrules: [{verbs: [get]}]\n---\nkind: Service\n")
    other.write_text("kind: Lore\nrules: [{verbs: [put]}]\n---\nkind: Service\n")

    first = shipped(file)
    first[0]["rules"].clear()
    first.pop()
    assert shipped(file) == [{"kind": "Role", "rules": [{"verbs": ["get"]}]}, {"kind": "Service"}]
    assert parsed == [file]
    # Of the same size and time.
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)
    assert shipped(file)[0]["kind"] == "Lore"
    assert parsed == [file, file]


@pytest.mark.parametrize("content", [None, "kind: ["])
def test_what_cannot_be_read_is_said_each_time(content: str | None, tmp_path: Path, parsed: list[Path]) -> None:
    file = tmp_path / "objects.yaml"
    if content is not None:
        file.write_text(content)

    for _ in range(2):
        with pytest.raises(InputError) as caught:
            shipped(file)
        assert str(caught.value.where).startswith(str(file))
    assert parsed == [file, file]
