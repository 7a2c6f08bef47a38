"""What scripts have written into the repository, the reference pages among it, is what they would write now.

In the documentation's site every page is there, and links hold as in the repository. The bundle for OLM is what
`install` plans; what differs is listed here.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import bundle, capabilities, dashboard, manifests, reference
from hack.chart import write
from hack.reference import commands, labels, metrics
from hack.site import hooks
from tests.cli.runner import run
from webhook import names
from webhook.install import plan
from webhook.install.registration import RegistrationTarget, configurations
from webhook.install.schedulers.render import VARIANTS
from webhook.kubevirt.releases.capabilities import CAPABILITIES
from webhook.settings_file import parse

ROOT, MANIFESTS = manifests.ROOT, manifests.MANIFESTS


def test_the_manifests_of_roles() -> None:
    for file, text in manifests.rbac_files().items():
        assert file.read_text() == text, "run make manifests"


def test_what_of_the_chart_takes_no_kustomize() -> None:
    """tests/e2e/test_chart.py has all of it."""
    stale = [file.name for file, text in write.without_kubectl().items() if file.read_text() != text]
    templates = (write.CHART / "templates" / "webhooks.yaml").read_text()
    configurations = re.findall(r"^kind: (\w+)\nmetadata:\n(?:  .+\n)*?  name: (\S+)$", templates, re.MULTILINE)
    assert len(configurations) == 3
    for kind, name in configurations:
        stale += [] if "\n".join(write.entries(kind, name)) in templates else [f"webhooks.yaml: {kind} {name}"]

    assert stale == [], "run make manifests"


def test_the_manifests_of_schedulers() -> None:
    for file, text in manifests.scheduler_files().items():
        assert file.read_text() == text, "run make manifests"
    assert manifests.digest("a") != manifests.digest("b")


@pytest.mark.parametrize("name", [*VARIANTS, "layers"])
def test_a_template_is_plain_yaml_whose_parameters_are_values(name: str) -> None:
    template = yaml.safe_load((manifests.SCHEDULER / "templates" / f"{name}.yaml").read_text())
    written = yaml.safe_load((manifests.SCHEDULER / f"{name}.yaml").read_text())
    parameters: list[str] = []

    def collect(filled: Any, value: Any) -> Any:
        """What was filled in, with the parameters again."""
        if isinstance(value, str) and value.startswith("$"):
            parameters.append(value)
            return value
        if isinstance(value, dict):
            assert filled.keys() == value.keys()
            return {key: collect(filled[key], item) for key, item in value.items()}
        return [collect(*each) for each in zip(filled, value, strict=True)] if isinstance(value, list) else filled

    assert collect(written if name == "layers" else written["profiles"], template) == template
    known = {"load-aware": "$METRIC_PROVIDER", "load-aware-pack": "$METRIC_PROVIDER", "layers": "$URL"}
    assert parameters == ([known[name]] if name in known else [])


@pytest.mark.parametrize("overlay", ["kubernetes", "openshift"])
def test_the_policies(overlay: str) -> None:
    settings = MANIFESTS / "overlays" / overlay / "settings.yaml"
    printed = run("manifests", "policies", "--config", settings).output
    assert (MANIFESTS / "policies" / f"{overlay}.yaml").read_text() == manifests.POLICIES + printed


def test_every_value_of_the_chart_has_a_comment_and_the_picture_every_panel_of_the_dashboard() -> None:
    lines = (ROOT / "charts" / "kubevirt-webhook" / "values.yaml").read_text().splitlines()
    values = [(before, line) for before, line in pairwise(lines) if re.match(r" *[A-Za-z]+: *\S", line)]

    assert len(values) > 25
    assert [line for before, line in values if not before.strip().startswith("# ")] == []
    shown = unescape(dashboard.PICTURE.read_text())
    titles = [panel["title"] for panel in json.loads(dashboard.DASHBOARD.read_text())["panels"]]

    assert [title for title in titles if f">{title}<" not in shown] == []
    assert shown.count("<polyline") > 5


def test_the_page_of_capabilities_says_what_the_modules_say() -> None:
    page = capabilities.PAGE.read_text()

    assert capabilities.written(page) == page, "run python -m hack.capabilities"
    # Each is asked for in one place.
    assert {name: len(files) for name, files in capabilities.places().items()} == dict.fromkeys(CAPABILITIES, 1)


def test_the_pages_describe_the_code() -> None:
    assert reference.outdated() == [], "run make docs"
    links = set(re.findall(r"\]\(#([^)]+)\)", commands.page()))
    assert links
    assert links <= {title.replace(" ", "-") for title in re.findall(r"^## (.+)$", commands.page(), re.MULTILINE)}


def test_every_metric_is_there() -> None:
    sources = "\n".join(file.read_text() for file in (ROOT / "webhook").rglob("*.py"))
    named = set(re.findall(r'"(kubevirt_webhook_[a-z_]+)"', sources))
    listed = set(re.findall(r"^\| `(kubevirt_webhook_[a-z_]+)` \|", metrics.page(), re.MULTILINE))

    assert {name.removesuffix("_total") for name in named} == {name.removesuffix("_total") for name in listed}
    # The handwritten list, with the values of labels, has the same.
    monitoring = (ROOT / "docs" / "monitoring.md").read_text()
    assert {name for name in listed if f"`{name}`" not in monitoring} == set()


# Formats, groups and places that begin as labels do.
NOT_KEYS = {"admission", "latest", "v1"}
KEY = r"(?:\{(?:names\.)?DOMAIN\}|kubevirt-webhook\.github\.io)(?:/|~1)([a-z][a-z0-9-]*[a-z0-9])(?![\w/-])"


def test_every_label_and_annotation_is_there() -> None:
    sources = [*(ROOT / "webhook").rglob("*.py"), *MANIFESTS.rglob("*.yaml")]
    named = set(re.findall(KEY, "\n".join(file.read_text() for file in sources)))
    listed = {key.short_name for key in (*labels.LABELS, *labels.PARAMETERS, *labels.RECORDS)}

    named |= {
        value.partition("/")[2] for value in map(str, vars(names).values()) if value.startswith(f"{names.DOMAIN}/")
    }
    assert sorted(named - NOT_KEYS - listed) == [], (
        "say in hack/reference/labels.py what each is for, then run make docs"
    )


def test_since_when_there_is_a_label_is_what_releases_have_recorded(tmp_path: Path) -> None:
    def since() -> dict[tuple[str, str], str]:
        rows = [line.split(" | ") for line in labels.page(tmp_path).splitlines() if line.startswith("| `")]
        return {(row[0].strip("| `"), row[1]): row[-1].strip("| ") for row in rows if len(row) == 7}

    assert set(since().values()) == {"unreleased"}
    for version, record in {"0.10.0": {"Namespace": ["sizes", "spread"]}, "0.9.0": {"Namespace": ["spread"]}}.items():
        (tmp_path / version).mkdir()
        (tmp_path / version / labels.RECORD).write_text(yaml.safe_dump(record))
    found = since()
    assert found["sizes", "Namespace"] == "0.10.0"
    assert found["spread", "Namespace"] == "0.9.0"
    assert found["spread", "template of a VM, or VMI"] == "unreleased"
    (tmp_path / "0.11.0").mkdir()
    (tmp_path / "0.11.0" / labels.RECORD).write_text(labels.recorded())
    assert set(since().values()) == {"0.9.0", "0.10.0", "0.11.0"}


def test_labels_and_annotations_of_namespaces_are_those_that_the_api_server_lets_in() -> None:
    file, text = manifests.validation_file()
    assert file.read_text() == text, "run make manifests"
    found = re.findall(r"\[('[a-z-]+'(?:,\s+'[a-z-]+')*)\]\.map\(name", text)
    admitted = {name for each in found for name in re.findall(r"[a-z-]+", each)} | {"metrics"}
    keys = (*labels.LABELS, *labels.PARAMETERS)

    assert admitted == {key.short_name for key in keys if key.where == "Namespace"}, "correct hack/reference/labels.py"


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(part)]


def test_every_page_is_in_the_navigation_once_and_every_decision_in_the_list() -> None:
    nav = yaml.safe_load(re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text()))["nav"]
    config: Any = type("Config", (), {"nav": nav})()
    files = [file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md")]

    named = pages_of(hooks.on_config(config).nav)
    assert sorted(named) == sorted([*files, *hooks.OUTSIDE.values()]), "add the page to nav in mkdocs.yml"
    page = (ROOT / "docs" / "adr" / "README.md").read_text()
    line = r"^\* \[(.+)\]\((.+?)\)(?: \(superseded by \d+\))?$"
    listed = {title: f"adr/{file}" for title, file in re.findall(line, page, re.MULTILINE)}

    titles = {(ROOT / "docs" / each).read_text().split("\n", 1)[0]: each for each in hooks.decisions()}
    assert {f"# {title}": file for title, file in listed.items()} == titles


def test_links_lead_to_the_same_page_in_the_site() -> None:
    rest = "[c](https://kubevirt.io) [d](#e)\n```\n[f](docs/faq.md)\n```\n"
    text = f"[a](docs/faq.md#x) ![b](docs/images/decision.svg) {rest}"

    assert hooks.rewritten("README.md", text) == f"[a](faq.md#x) ![b](images/decision.svg) {rest}"
    assert hooks.rewritten("docs/faq.md", "[a](../README.md) [b](spread.md)") == "[a](index.md) [b](spread.md)"
    assert hooks.rewritten("docs/adr/0001-facts-by-replay.md", "[a](../../SECURITY.md)") == "[a](../security.md)"
    assert hooks.rewritten("README.md", "[a](docs/adr)") == "[a](adr/README.md)"
    # Files of the repository become pages that show them.
    file = "manifests/base/rbac.yaml"
    assert file in hooks.sources()
    assert hooks.rewritten("docs/faq.md", f"[a](../{file})") == f"[a](source/{file}.md)"
    assert (ROOT / file).read_text().rstrip() in hooks.shown(file)


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


@pytest.mark.control("olm-without-a-selector")
def test_the_webhooks_are_those_of_install_by_the_endpoint_that_has_every_mode(spec: Any) -> None:
    settings = parse(b'{"events": "on", "scheduling": {"virtualMachineInstances": true}}', "settings")
    entries = {
        (one["kind"].replace("WebhookConfiguration", ""), entry["clientConfig"]["service"]["path"]): entry
        for one in configurations(settings, RegistrationTarget(only_ignore=True))
        for entry in one["webhooks"]
        if ".enforce." in entry["name"] and not any(each in entry["name"] for each in ("eviction", "namespaces."))
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
