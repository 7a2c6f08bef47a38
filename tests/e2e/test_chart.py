"""The Helm chart: that it is what the overlays and `install` are, and that no value of it is more than a value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from hack.chart.write import CHART as GENERATED
from hack.chart.write import generated
from hack.release.build import tar_gz
from tests.builders import changed
from webhook.errors import InputError
from webhook.install import plan
from webhook.install.callers import restrict_callers
from webhook.install.plan import DIGEST_ANNOTATION, Overlay
from webhook.policies.registry import BY_NAME
from webhook.settings.validation import schema as settings_schema
from webhook.settings_file import MODEL, parse

from .support.access import Access
from .support.helm import CHART, IMAGE, Helm, is_of_a_test
from .support.kube import Json
from .support.manifests import MANIFESTS, kustomization
from .support.manifests import parse as parse_documents
from .support.processes import GARBAGE

OVERLAYS: list[Overlay] = ["kubernetes", "openshift"]
# The settings of the overlay, which the chart's user gives.
ON_OPENSHIFT = {
    "openshift": True,
    "settings": {"kubevirt": {"namespace": "openshift-cnv"}, "eviction": {"coolDownSeconds": 0}},
}
OF_OVERLAY: dict[str, dict[str, Any]] = {"kubernetes": {}, "openshift": ON_OPENSHIFT}
LISTENING = {"admin": {"listen": "0.0.0.0:8090", "metrics": True}}


@pytest.fixture(scope="module")
def helm(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


def comparable(objects: list[Json]) -> dict[str, Json]:
    """Objects by title, without what each way of installing has of its own: the Namespace, the image, the settings'
    text and its digest, what `helm test` makes, and the order of peers in a NetworkPolicy."""
    result = {}
    for one in deepcopy(objects):
        if one["kind"] == "Namespace" or is_of_a_test(one):
            continue
        if one["kind"] == "Deployment":
            template = one["spec"]["template"]
            template["metadata"]["annotations"].pop(DIGEST_ANNOTATION, None)
            template["spec"]["containers"][0]["image"] = ""
        if one["kind"] == "ConfigMap" and "settings.yaml" in one["data"]:
            text = one["data"].pop("settings.yaml")
            one["settings"] = changed(parse(text.encode(), "settings"), digest="")
        if one["kind"] == "NetworkPolicy":
            for rule in one["spec"]["ingress"]:
                if "from" in rule:
                    rule["from"].sort(key=json.dumps)
        result[plan.title(one)] = one
    return result


def planned(overlay: Overlay, content: Mapping[str, Any]) -> dict[str, Json]:
    made = plan.of(MANIFESTS, overlay, json.dumps(content), "settings", "")
    return comparable(list(made.manifests))


def test_the_chart_is_what_the_manifests_make(binaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*next(iter(GARBAGE.items())))
    files = generated(binaries / "kubectl")

    assert [file.name for file, text in files.items() if file.read_text() != text] == [], "run make manifests"
    kept = {file for file in files if file.suffix == ".yaml"}
    assert set((GENERATED / "templates").glob("*.yaml")) == kept


# Of components, the values that choose them.
CHOICES: dict[str, dict[str, Any]] = {
    "cert-manager": {"certificates": "cert-manager"},
    "kubevirt-plugin": {"kubevirtPlugin": True},
    **{name: {name: {"enabled": True}} for name in ("monitoring", "dashboard", "autoscaling")},
}


TOGETHER = (
    ("autoscaling", "cert-manager", "monitoring"),
    ("admin", "monitoring", "metrics-monitoring"),
    ("admin", "monitoring", "metrics-monitoring-cert-manager", "cert-manager"),
)


@pytest.mark.parametrize("component", [(), *((name,) for name in CHOICES), *TOGETHER], ids="+".join)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_components_are_those_of_kustomize(
    plane: Access, helm: Helm, tmp_path: Path, overlay: Overlay, component: tuple[str, ...]
) -> None:
    values = {**OF_OVERLAY[overlay], **{key: CHOICES[name][key] for name in component for key in CHOICES.get(name, ())}}
    settings = None
    if "admin" in component:
        # The chart scrapes the admin listener where it has the metrics.
        settings = values["settings"] = {**values.get("settings", {}), **LISTENING}
    made = plane.kubectl("kustomize", kustomization(tmp_path, overlay, *component, settings=settings)).stdout

    assert comparable(helm.template(values)) == comparable(parse_documents(made))


BOOLEANS = st.booleans()
NAMES = st.sampled_from(["a", "kube-public", "n.b", "zz-9"])
NAMESPACES = st.sampled_from(["a", "kube-public", "kubevirt", "zz-9"])
POLICY = {"clusterWide": BOOLEANS}
EXPRESSIONS = st.sampled_from(
    [
        {"key": "tier", "operator": "In", "values": ["on", "1e5"]},
        {"key": "a.b/c", "operator": "Exists"},
        {"key": "none", "operator": "DoesNotExist", "values": []},
    ]
)

VERIFIED = {"clientCaFile": "/etc/kubevirt-webhook-layers/ca.crt", "clientNames": ["system:kube-scheduler"]}


def section(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


OF_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "server": section(shutdownSeconds=st.sampled_from([0, 10, 11, 60])),
    "kubevirt": section(namespace=st.sampled_from(["kubevirt", "virt", ""])),
    "excludedNamespaces": st.lists(NAMESPACES, max_size=3),
    "schedulers": st.dictionaries(
        NAMES,
        st.fixed_dictionaries(
            {"healthCheck": st.sampled_from(["pods", "off", "lease a/b"])}, optional={"onlyByWebhook": BOOLEANS}
        ),
        min_size=1,
        max_size=1,
    ),
    "scheduling": section(
        **POLICY,
        virtualMachines=BOOLEANS,
        virtualMachineInstances=BOOLEANS,
        spread=st.sampled_from(["off", "zone", "both"]),
        spreadVirtualMachines=BOOLEANS,
        spreadVirtualMachineInstances=BOOLEANS,
    ),
    "instancetypes": section(
        **POLICY,
        virtualMachines=BOOLEANS,
        virtualMachineInstances=BOOLEANS,
        failurePolicy=st.sampled_from(["Fail", "Ignore"]),
        fidelityCheck=section(sample=st.integers(0, 2)),
    ),
    "migration": section(
        **POLICY, failurePolicy=st.sampled_from(["Fail", "Ignore"]), maxInboundPerNode=st.sampled_from([0, 2])
    ),
    "sizes": section(**POLICY, failurePolicy=st.sampled_from(["Fail", "Ignore"])),
    "eviction": section(
        **POLICY,
        protectTransfersSeconds=st.sampled_from([0, 60]),
        requesters=st.lists(st.sampled_from(["a", "b.c/d", "sigs.k8s.io/descheduler"]), max_size=2),
    ),
    "preemption": section(**POLICY, requestMigrations=BOOLEANS),
    "headroom": section(**POLICY, enabled=BOOLEANS),
    "layers": st.sampled_from([{}, {"listen": "127.0.0.1:8446"}, {"listen": "0.0.0.0:8447", **VERIFIED}]),
    "admin": st.one_of(
        st.sampled_from([{}, {"listen": ""}, {"metrics": False}]),
        st.fixed_dictionaries(
            {"listen": st.sampled_from(["127.0.0.1:8090", "0.0.0.0:8091", "[::]:8092"])}, optional={"metrics": BOOLEANS}
        ),
    ),
    "webhooks": section(
        timeoutSeconds=st.integers(1, 3), namespaceSelector=section(matchExpressions=st.lists(EXPRESSIONS, max_size=2))
    ),
    "audit": section(maxBytes=st.just(104_857_600)),
    "events": st.sampled_from(["on", "off", True]),
    "driftScan": section(everyMinutes=st.sampled_from([0, 30]), policyReports=BOOLEANS),
}
# A policy that is not among them has what all policies have.
SETTINGS = section(**dict.fromkeys(BY_NAME, section(**POLICY)) | OF_PARTS)


@given(content=SETTINGS, namespace=st.sampled_from(["kubevirt-webhook", "infra-vms"]))
@example(content={}, namespace="infra-vms")
# Without shrinking, which would run Helm for minutes.
@settings(
    max_examples=15,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_settings_as_values_make_what_install_makes(helm: Helm, content: dict[str, Any], namespace: str) -> None:
    webhooks = {**content.get("webhooks", {}), "service": {"namespace": namespace}}
    made = helm.template({"settings": content}, f"--namespace={namespace}")
    assert comparable(made) == planned("kubernetes", {**content, "webhooks": webhooks})


def others(field: Json) -> list[Any]:
    """Values that a setting may have instead of its default, by its schema."""
    default = field.get("default")
    kind, bounds = field.get("type"), [field.get("minimum"), field.get("maximum")]
    values: list[Any] = field.get("enum") or {
        "boolean": [False, True],
        "integer": [each for each in bounds if each is not None],
        "string": ["other", "0.0.0.0:9999"],
        "array": [[], ["other"]] if field.get("items", {}).get("type") == "string" else [],
    }.get(str(kind), [])
    return [each for each in values if each != default]


def single_settings() -> Iterator[dict[str, Any]]:
    """Settings files with one setting, each with another value than its default, of all that have simple values."""
    schema = settings_schema(MODEL)

    def within(field: Json) -> Iterator[Any]:
        while "$ref" in field:
            field = schema["$defs"][field["$ref"].rpartition("/")[2]]
        if not field.get("properties"):
            yield from others(field)
        for key, part in field.get("properties", {}).items():
            yield from ({key: value} for value in within(part))

    yield from within(schema)


def test_each_setting_makes_what_install_makes(helm: Helm) -> None:
    """The chart follows every setting on which an object depends, also one that its templates were not told of."""
    usual, followed = planned("kubernetes", {}), []
    # What the chart refuses: it has values for the namespace.
    fixed = {"service": {"namespace": "other"}}
    for content in single_settings():
        try:
            expected = planned("kubernetes", content)
        except InputError:
            continue  # it is valid together with others alone
        titles = usual.keys() | expected.keys()
        if content.get("webhooks") == fixed or all(alike(usual, expected, title) for title in titles):
            continue
        assert comparable(helm.template({"settings": content})) == expected, content
        followed.append(content)
    assert {"sizes": {"failurePolicy": "Fail"}} in followed


def alike(some: Mapping[str, Json], others: Mapping[str, Json], title: str) -> bool:
    """Whether two plans have the same object, but for the settings themselves."""
    one, other = (dict(each.get(title, {})) for each in (some, others))
    one.pop("settings", None)
    other.pop("settings", None)
    return one == other


def test_the_digest_of_the_settings_is_that_of_their_text(helm: Helm) -> None:
    made = {one["kind"]: one for one in helm.template({"settings": {"events": "on"}}) if "Binding" not in one["kind"]}
    text = made["ConfigMap"]["data"]["settings.yaml"]

    deployment = plan.of(MANIFESTS, "kubernetes", text, "settings", "").deployment
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert made["Deployment"]["spec"]["template"]["metadata"]["annotations"] == annotations


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_callers_are_those_of_install(helm: Helm, overlay: Overlay) -> None:
    blocks = ["10.0.0.0/28", "10.0.1.7/32"]
    values = {**OF_OVERLAY[overlay], "networkPolicy": {"callers": blocks}}

    made = comparable(helm.template(values))

    policy = restrict_callers(plan.network_policy(MANIFESTS, overlay), blocks)
    assert made[plan.title(policy)] == comparable([policy])[plan.title(policy)]


def test_values_that_only_a_chart_has(helm: Helm) -> None:
    digest = f"sha256:{'a' * 64}"
    passed_on: Json = {
        "imagePullSecrets": [{"name": "mirror"}],
        "nodeSelector": {"infra": "true"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
    }
    values = {
        "image": {**IMAGE, "digest": digest},
        "replicas": 3,
        "commonLabels": {"team": "virt"},
        "podLabels": {"mesh": "no"},
        "podAnnotations": {"note": "yes"},
        **passed_on,
        "resources": {"requests": {"cpu": "1"}},
        "monitoring": {"enabled": True, "labels": {"release": "kube-prometheus-stack"}, "interval": "10s"},
        "dashboard": {"enabled": True, "labels": {"grafana": "one"}},
        "podDisruptionBudget": {"maxUnavailable": 2},
    }

    made = helm.template(values)

    assert {one["metadata"]["labels"]["team"] for one in made} == {"virt"}
    by_kind = {one["kind"]: one for one in made}
    deployment = by_kind["Deployment"]
    template = deployment["spec"]["template"]
    pod = template["spec"]
    assert deployment["spec"]["replicas"] == 3
    app = {"app.kubernetes.io/name": "kubevirt-webhook"}
    assert template["metadata"]["labels"] == {**app, "mesh": "no", "team": "virt"}
    assert template["metadata"]["annotations"]["note"] == "yes"
    assert pod["containers"][0]["image"] == f"{IMAGE['repository']}@{digest}"
    assert pod["containers"][0]["resources"] == values["resources"]
    assert {key: pod[key] for key in passed_on} == passed_on
    assert deployment["spec"]["selector"] == {"matchLabels": app}
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert by_kind[kind]["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert by_kind["ServiceMonitor"]["spec"]["endpoints"][0]["interval"] == "10s"
    assert by_kind["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 2
    # What `helm test` starts can be pulled and placed like the replicas, and is none of them to the Service.
    checked = by_kind["Pod"]["spec"]
    assert {key: checked[key] for key in passed_on if key in checked} == {
        key: value for key, value in passed_on.items() if key != "topologySpreadConstraints"
    }
    assert checked["containers"][0]["image"] == pod["containers"][0]["image"]
    assert checked["securityContext"] == pod["securityContext"]
    assert by_kind["Pod"]["metadata"]["labels"]["app.kubernetes.io/name"] == "kubevirt-webhook-doctor"
    (dashboard,) = (one for one in made if one["metadata"]["name"] == "kubevirt-webhook-dashboard")
    assert dashboard["metadata"]["labels"]["grafana"] == "one"


def test_parts_can_be_left_out(helm: Helm) -> None:
    everything = comparable(helm.template())
    values = {"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}}

    left = everything.keys() - comparable(helm.template(values)).keys()

    assert left == {f"{kind} kubevirt-webhook/kubevirt-webhook" for kind in ("NetworkPolicy", "PodDisruptionBudget")}


@pytest.mark.control("mistyped-chart-values", "chart-values-half-applied")
@pytest.mark.parametrize(("values", "part"), [
    ({}, "set image.repository"),
    ({"image": IMAGE, "openshift": True}, "settings.kubevirt.namespace is missing"),
    ({"image": IMAGE, "replica": 2}, "additional properties 'replica' not allowed"),
    ({"image": {**IMAGE, "digest": "sha256:1"}}, "/image/digest"),
    ({"image": IMAGE, "settings": {"migration": {"collision": "no"}}}, "/settings/migration/collision"),
    ({"image": IMAGE, "settings": {"webhooks": {"service": {"name": "other"}}}}, "/settings/webhooks/service/name"),
    ({"image": IMAGE, "settings": {"server": {"listen": "0.0.0.0:9443"}}}, "/settings/server/listen"),
    ({"image": IMAGE, "settings": {"schedulers": {"It's": {"healthCheck": "off"}}}}, "/settings/schedulers"),
    ({"image": IMAGE, "settings": None}, "settings"),
    ({"image": IMAGE, "networkPolicy": None}, "missing property 'networkPolicy'"),
    ({"image": IMAGE, "networkPolicy": {"callers": ["10.0.0.1"]}}, "/networkPolicy/callers/0"),
    ({"image": IMAGE, "podDisruptionBudget": {"maxUnavailable": "half"}}, "/podDisruptionBudget/maxUnavailable"),
    ({"image": IMAGE, "commonLabels": {"app.kubernetes.io/name": "x"}}, "invalid propertyName 'app.kubernetes"),
    ({"image": IMAGE, "podAnnotations": {"kubectl.kubernetes.io/default-container": "x"}}, "invalid propertyName"),
    ({"image": IMAGE, "autoscaling": {"enabled": True, "minReplicas": 7}}, "autoscaling.minReplicas is larger"),
    ({"image": IMAGE, "settings": {"webhooks": {"service": {"namespace": "other"}}}}, "or use --namespace other"),
])  # fmt: skip
def test_mistakes_are_refused_before_anything_is_installed(helm: Helm, values: dict[str, Any], part: str) -> None:
    assert part in helm.refusal(values)


def test_everything_is_in_the_namespace_of_the_release(helm: Helm) -> None:
    values = {"monitoring": {"enabled": True}, "certificates": "cert-manager", "settings": LISTENING}
    made = helm.template({**values, "autoscaling": {"enabled": True}}, "--namespace=infra-vms")

    assert {one["metadata"].get("namespace", "infra-vms") for one in made} == {"infra-vms"}
    text = json.dumps(made)
    assert "kubevirt-webhook.kubevirt-webhook.svc" not in text
    assert "system:serviceaccount:kubevirt-webhook:" not in text
    assert '"kubevirt-webhook/kubevirt-webhook"' not in text


def test_values_that_break_the_facts_are_an_error_where_the_schema_is_not_looked_at(helm: Helm) -> None:
    """Helm makes a map of the error, in which every fact is false: the chart would be rendered without its parts."""
    values = {"image": IMAGE, "settings": {"admin": {"listen": "0.0.0.0:8091\nopenshift: ["}}}
    said = helm.run("template", CHART, "--skip-schema-validation", values=values, check=False)

    assert "the chart cannot read what it made of the values: error converting YAML" in said
    assert "kind:" not in said


def test_the_linter_has_nothing_to_say(helm: Helm) -> None:
    for values in ({"image": IMAGE}, {"image": IMAGE, **ON_OPENSHIFT, "certificates": "cert-manager"}):
        said = helm.run("lint", "--strict", CHART, values=values)
        assert "0 chart(s) failed" in said
        assert "ERROR" not in said
        assert "WARNING" not in said


def test_the_package_of_a_release_is_the_chart(helm: Helm, tmp_path: Path) -> None:
    contents = {
        f"kubevirt-webhook/{file.relative_to(CHART)}": file.read_bytes() for file in CHART.rglob("*") if file.is_file()
    }
    package = tmp_path / "kubevirt-webhook-0.1.0.tgz"
    package.write_bytes(tar_gz(contents, 1_790_000_000))

    made = helm.run("template", "kubevirt-webhook", package, values={"image": IMAGE})

    assert [one for one in parse_documents(made) if one] == helm.template()


GITOPS = Path(__file__).resolve().parents[2] / "examples" / "gitops"


def test_examples_for_gitops_tools_render(helm: Helm) -> None:
    (application,) = yaml.safe_load_all((GITOPS / "argocd.yaml").read_text())
    _, release = yaml.safe_load_all((GITOPS / "flux.yaml").read_text())
    for values in (application["spec"]["source"]["helm"]["valuesObject"], release["spec"]["values"]):
        kinds = {one["kind"] for one in helm.template(values) if "webhooks" in one}

        ignored = {one["kind"]: one["jqPathExpressions"] for one in application["spec"]["ignoreDifferences"]}
        assert ignored == {kind: [".webhooks[].clientConfig.caBundle"] for kind in kinds}
    assert "RespectIgnoreDifferences=true" in application["spec"]["syncPolicy"]["syncOptions"]


SCHEMA: Final[Json] = json.loads((CHART / "values.schema.json").read_text())
# Everything that the chart can make, so that every value is used.
ON: Final[tuple[tuple[str, ...], ...]] = (("autoscaling",), ("monitoring",), ("dashboard",))
# Longer ones are not YAML.
MAX_KEY: Final = 900
# Of a scheduler, and of a registry.
NAME: Final = "kubevirt"
HOSTILE: Final = {
    "lines": "x\ny: z\n---\nkind: Secret\n",
    "after a colon": "x:1\nopenshift: true",
    "double quote": 'x", "y": "z',
    "single quote": "x', y: 'z",
    "template": '{{ fail "x" }}{{ .Release.Name }}',
    "anchor": "&a {<<: *a}",
    "comment": "x #",
    "a line break of YAML": "x\u2028y: z",
    "long": "x" * 100_000,
}


class Leaf(NamedTuple):
    """A value that is no object with keys of the chart's own; a step that is a number: an item of a list."""

    path: tuple[str | int, ...]
    kind: str

    @property
    def pointer(self) -> str:
        return "".join(f"/{step}" for step in self.path)


def leaves(node: Json = SCHEMA, path: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    if "anyOf" in node:
        node = node["anyOf"][0]
    named = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")][0]
    kind = node.get("type", "string")
    if "properties" in node:
        for name, value in node["properties"].items():
            yield from leaves(value, (*path, name))
    elif kind == "array":
        yield from leaves(node["items"], (*path, 0))
    elif isinstance(named, dict) and "$ref" in named:
        yield from leaves(named, (*path, NAME))
        yield Leaf(path, "names")
    else:
        yield Leaf(path, kind if isinstance(kind, str) else "integer or string")


# Items that need several fields at once, and a map whose keys have a schema: one value of them alone is never valid.
OF_SEVERAL: Final = (
    *(f"/settings/defaults/{name}" for name in ("nodeAffinity", "nodeSelector", "tolerations")),
    "/settings/groups/rules",
)
LEAVES: Final = tuple(leaf for leaf in leaves() if not leaf.pointer.startswith(OF_SEVERAL))


def values(chosen: dict[Leaf, Any]) -> Json:
    tree: Json = {"image": dict(IMAGE), **{name: {"enabled": True} for (name,) in ON}}
    for leaf, value in chosen.items():
        place: Any = tree
        for step, following in zip(leaf.path, leaf.path[1:], strict=False):
            empty: Any = [] if isinstance(following, int) else {}
            place = _step(place, step, empty)
        if isinstance(place, list):
            place.append(value)
        elif isinstance(value, dict) and isinstance(place.get(leaf.path[-1]), dict):
            place[leaf.path[-1]].update(value)
        else:
            place[leaf.path[-1]] = value
    return tree


def _step(place: Any, step: str | int, empty: Any) -> Any:
    if isinstance(step, str):
        return place.setdefault(step, empty)
    if not place:
        place.append(empty)
    return place[step]


def shaped(leaf: Leaf, text: str) -> Any:
    """A text as a value: of maps also as a key."""
    if leaf.kind == "names":
        return {text[-MAX_KEY:]: {}}
    return {text[-MAX_KEY:]: text} if leaf.kind == "object" else text


def refused(helm: Helm, chosen: dict[Leaf, Any]) -> set[Leaf]:
    said = helm.run("template", "kubevirt-webhook", CHART, values=values(chosen), check=False)
    assert "values don't meet the specifications of the schema" in said, said[:2000]

    def is_named(leaf: Leaf) -> bool:
        return bool(re.search(rf"at '{re.escape(leaf.pointer)}['/]", said))

    return {leaf for leaf in chosen if is_named(leaf)}


def objects(helm: Helm, chosen: dict[Leaf, Any]) -> Any:
    """What the chart makes, without digests; lists of texts in the order of their texts."""
    made = helm.run("template", "kubevirt-webhook", CHART, values=values(chosen))
    found = [one for one in yaml.load_all(made, UniqueKeyLoader) if one]
    for one in found:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["metadata"]["annotations"].pop(DIGEST_ANNOTATION)
        if one["kind"] == "ConfigMap" and "settings.yaml" in one["data"]:
            (one["data"],) = parse_documents(one["data"]["settings.yaml"])
    return found


class UniqueKeyLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """As the API server's strict reader: a key that is there twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len({*keys}) == len(keys), f"twice: {keys}"
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def replaced(tree: Any, change: Callable[[str], str]) -> Any:
    """A tree with all of its texts changed, keys too, and its lists of texts sorted."""
    if isinstance(tree, dict):
        return {replaced(key, change)[-MAX_KEY:]: replaced(value, change) for key, value in tree.items()}
    if isinstance(tree, list):
        items = [replaced(item, change) for item in tree]
        return sorted(items) if all(isinstance(item, str) for item in items) else items
    return change(tree) if isinstance(tree, str) else tree


HARMLESS: Final = {leaf: f"harmless{number}x" for number, leaf in enumerate(LEAVES)}


@pytest.fixture(scope="module")
def choosy(helm: Helm) -> set[Leaf]:
    """The values that do not take any text."""
    return refused(helm, {leaf: shaped(leaf, text) for leaf, text in HARMLESS.items()})


@pytest.mark.control("hostile-chart-values")
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_refused_by_its_name_or_stands_where_it_belongs(
    helm: Helm, choosy: set[Leaf], hostile: str
) -> None:
    texts = {leaf: f"{hostile}{number}x" for number, leaf in enumerate(LEAVES)}
    wrong = choosy | refused(helm, {leaf: shaped(leaf, text) for leaf, text in texts.items()})
    kept = [leaf for leaf in LEAVES if leaf not in wrong]

    made = objects(helm, {leaf: shaped(leaf, texts[leaf]) for leaf in kept})
    expected = objects(helm, {leaf: shaped(leaf, HARMLESS[leaf]) for leaf in kept})

    def hostile_again(text: str) -> str:
        for leaf in kept:
            text = text.replace(HARMLESS[leaf], texts[leaf])
        return text

    assert replaced(made, str) == replaced(expected, hostile_again)


@pytest.mark.control("hostile-chart-values")
@pytest.mark.parametrize("value", [-1, 2**40, 0.5, "1", "x\ny: z", [], {}], ids=repr)
def test_a_number_is_a_number_in_its_range(helm: Helm, value: Any) -> None:
    numbers = {leaf: value for leaf in LEAVES if leaf.kind.startswith("integer")}
    assert len(numbers) > 20
    assert refused(helm, numbers) == {*numbers}


@pytest.mark.control("hostile-chart-values")
@pytest.mark.parametrize("value", [7, True, [], {}], ids=repr)
def test_a_text_is_a_text(helm: Helm, value: Any) -> None:
    texts = {leaf: value for leaf in LEAVES if leaf.kind == "string"}
    # YAML 1.1 makes booleans of on and off.
    excepted = {leaf for leaf in texts if leaf.pointer == "/settings/events" and value is True}
    assert refused(helm, texts) == {*texts} - excepted


@pytest.mark.control("hostile-chart-values")
def test_labels_that_kubernetes_would_deny_are_refused(helm: Helm) -> None:
    labels = [leaf for leaf in LEAVES if "abels" in leaf.pointer]
    for key, value in (("a b", "x"), ("/a", "x"), ("a", "x y"), ("a", "x" * 64), ("a", "-x"), ("a" * 64, "x")):
        assert refused(helm, {leaf: {key: value} for leaf in labels}) == {*labels}
