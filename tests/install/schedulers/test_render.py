"""The shipped schedulers, and that each may do what a kube-scheduler of each version does, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.e2e.support.manifests import parse
from tests.install.memory import MANIFESTS
from webhook.errors import InputError
from webhook.install.schedulers import render
from webhook.install.schedulers.lint import LintTarget, lint
from webhook.install.schedulers.render import LOAD_AWARE, VARIANTS, Variant, configuration, granted, needed
from webhook.k8s.documents import Document

# As the Go types of scheduler-plugins have them (apis/config/v1/types.go), whose decoder is strict.
FIELDS = {
    "LoadVariationRiskBalancing": {"metricProvider", "safeVarianceMargin", "safeVarianceSensitivity"},
    "TargetLoadPacking": {"metricProvider", "defaultRequests", "defaultRequestsMultiplier", "targetUtilization"},
}
(UPSTREAM,) = parse((MANIFESTS.parent / "tests" / "data" / "scheduler-roles.yaml").read_text())


def rendered(variant: Variant, place: render.SchedulerPlace = "second", prometheus: str = "") -> Any:
    return yaml.safe_load(configuration(MANIFESTS, variant, place, prometheus=prometheus))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_configuration_for_each_place(variant: Variant) -> None:
    beside, own, openshift = (rendered(variant, place) for place in ("second", "cluster", "openshift"))

    for written, is_the_clusters in ((beside, False), (own, True)):
        assert lint(Document(written, "f.yaml", 1), LintTarget(is_the_clusters=is_the_clusters)) == []
    # The cluster's own scheduler keeps its profile and its Lease, and the operator elects by itself.
    assert own["profiles"] == [{"schedulerName": "default-scheduler"}, *beside["profiles"]]
    assert "leaderElection" not in own
    assert own["clientConnection"]["kubeconfig"] == "/etc/kubernetes/scheduler.conf"
    assert beside.pop("leaderElection")["resourceName"] == "kubevirt-scheduler"
    assert openshift == beside


@pytest.mark.parametrize("variant", LOAD_AWARE)
def test_a_prometheus_instead_of_metrics_server(variant: Variant) -> None:
    url = "https://prometheus.monitoring.svc:9090"
    for prometheus, expected in (
        ("", {"type": "KubernetesMetricsServer"}),
        (url, {"type": "Prometheus", "address": url}),
    ):
        (config,) = rendered(variant, prometheus=prometheus)["profiles"][0]["pluginConfig"]
        assert config["args"]["metricProvider"] == expected
        assert render.prometheus_of(configuration(MANIFESTS, variant, prometheus=prometheus)) == prometheus


def test_the_prometheus_of_a_live_scheduler_is_found_however_its_configuration_is_written() -> None:
    url, written = "https://prometheus.monitoring.svc:9090", configuration(MANIFESTS, "load-aware")
    for provider in (
        # As earlier versions have written it, and as editors do.
        f'type: Prometheus\n            address: "{url}"',
        f"address: {url}\n            type: 'Prometheus'",
        f"insecureSkipVerify: true\n            # ours\n            address: {url}\n            type: Prometheus",
    ):
        assert render.prometheus_of(written.replace("type: KubernetesMetricsServer", provider)) == url
    for text in ("", "a: [", "[]", "profiles: 1", "profiles: [{pluginConfig: [{name: a, args: {metricProvider: 1}}]}]"):
        assert render.prometheus_of(text) == ""


@pytest.mark.parametrize(
    ("variant", "url"),
    [
        *(("spread", "http://prometheus"), ("load-aware", "prometheus:9090"), ("load-aware", 'http://a" , b: "c')),
        ("load-aware", "http://a\nb: c"),
    ],
)
def test_what_is_no_source(variant: Variant, url: str) -> None:
    with pytest.raises(InputError) as caught:
        configuration(MANIFESTS, variant, prometheus=url)
    assert (caught.value.where, bool(caught.value.fix)) == ("--prometheus", True)


@pytest.mark.parametrize("variant", LOAD_AWARE)
def test_load_aware_variants_run_one_plugin_with_arguments_that_it_has(variant: Variant) -> None:
    (profile,) = rendered(variant)["profiles"]
    (enabled,) = profile["plugins"]["score"]["enabled"]
    (config,) = profile["pluginConfig"]

    name, args = enabled["name"], config["args"]

    assert (config["name"], args.pop("kind")) == (name, f"{name}Args")
    assert args.pop("apiVersion") == "kubescheduler.config.k8s.io/v1"
    assert args.keys() == FIELDS[name]
    # Go has a string here.
    assert isinstance(args.get("defaultRequestsMultiplier", ""), str)


def upstream(version: str) -> list[Any]:
    return [rule for role in render.UPSTREAM_ROLES for rule in UPSTREAM[version][role]]


def shipped_rules(variant: str = "spread") -> list[Any]:
    documents = parse((MANIFESTS / "rendered" / f"scheduler-{variant}.yaml").read_text())
    (role,) = (one for one in documents if one["kind"] == "ClusterRole")
    rules: list[Any] = role["rules"]
    return rules


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("version", UPSTREAM)
def test_a_scheduler_of_each_version_has_all_that_it_needs(version: str, variant: str) -> None:
    """One that may not list a kind waits for it indefinitely, and places no pod."""
    assert needed(upstream(version)) - granted(shipped_rules(variant)) == set()


def test_it_has_nothing_that_no_version_needs() -> None:
    assert granted(shipped_rules()) - {each for version in UPSTREAM for each in needed(upstream(version))} == set()
    # Those of the tests are recorded.
    assert {version.rpartition(".")[0] for version in UPSTREAM} >= {f"v1.{minor}" for minor in range(30, 38)}


def test_what_a_newer_version_lists_is_missing_and_secrets_or_wildcards_never_are() -> None:
    future = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["devicepools"], "verbs": ["get", "list", "watch", "update"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"], "resourceNames": ["one"]},
    ]

    assert render.missing_reads([*upstream("v1.37.2"), *future], shipped_rules()) == [
        render.Permission("resource.k8s.io", "devicepools", "list"),
        render.Permission("resource.k8s.io", "devicepools", "watch"),
    ]
