from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from webhook.errors import InputError
from webhook.install.schedulers.lint import LintTarget, lint
from webhook.install.schedulers.render import LOAD_AWARE, VARIANTS, Place, Variant, configuration
from webhook.k8s.yaml_documents import Document

MANIFESTS = Path(__file__).parents[3] / "manifests"


@pytest.mark.parametrize("place", ["second", "cluster"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_shipped_configuration_has_a_mistake(variant: Variant, place: Place) -> None:
    written = yaml.safe_load(configuration(MANIFESTS, variant, place))

    assert lint(Document(written, "f.yaml", 1), LintTarget(is_the_clusters=place == "cluster")) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_clusters_own_scheduler_keeps_its_profile_and_its_lease(variant: Variant) -> None:
    written = yaml.safe_load(configuration(MANIFESTS, variant, "cluster"))
    beside = yaml.safe_load(configuration(MANIFESTS, variant))

    assert written["profiles"] == [{"schedulerName": "default-scheduler"}, *beside["profiles"]]
    assert "leaderElection" not in written
    assert written["clientConnection"]["kubeconfig"] == "/etc/kubernetes/scheduler.conf"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_operator_elects_by_itself(variant: Variant) -> None:
    written = yaml.safe_load(configuration(MANIFESTS, variant, "openshift"))
    beside = yaml.safe_load(configuration(MANIFESTS, variant))

    assert beside.pop("leaderElection")["resourceName"] == "kubevirt-scheduler"
    assert written == beside


@pytest.mark.parametrize("variant", LOAD_AWARE)
def test_a_prometheus_instead_of_metrics_server(variant: Variant) -> None:
    def source(prometheus: str) -> object:
        written = yaml.safe_load(configuration(MANIFESTS, variant, prometheus=prometheus))
        (config,) = written["profiles"][0]["pluginConfig"]
        return config["args"]["metricProvider"]

    assert source("") == {"type": "KubernetesMetricsServer"}
    url = "https://prometheus.monitoring.svc:9090"
    assert source(url) == {"type": "Prometheus", "address": url}


@pytest.mark.parametrize(
    ("variant", "url"),
    [
        ("spread", "http://prometheus"),
        ("load-aware", "prometheus:9090"),
        ("load-aware", 'http://a" , b: "c'),
        ("load-aware", "http://a\nb: c"),
    ],
)
def test_what_is_no_source(variant: Variant, url: str) -> None:
    with pytest.raises(InputError) as caught:
        configuration(MANIFESTS, variant, prometheus=url)

    assert (caught.value.where, bool(caught.value.fix)) == ("--prometheus", True)


# As the Go types of scheduler-plugins have them (apis/config/v1/types.go), whose decoder is strict.
FIELDS = {
    "LoadVariationRiskBalancing": {"metricProvider", "safeVarianceMargin", "safeVarianceSensitivity"},
    "TargetLoadPacking": {"metricProvider", "defaultRequests", "defaultRequestsMultiplier", "targetUtilization"},
}


@pytest.mark.parametrize("variant", LOAD_AWARE)
def test_load_aware_variants_run_one_plugin_with_arguments_that_it_has(variant: Variant) -> None:
    (profile,) = yaml.safe_load(configuration(MANIFESTS, variant))["profiles"]
    (enabled,) = profile["plugins"]["score"]["enabled"]
    (config,) = profile["pluginConfig"]

    assert config["name"] == enabled["name"]
    assert config["args"].pop("kind") == f"{enabled['name']}Args"
    assert config["args"].pop("apiVersion") == "kubescheduler.config.k8s.io/v1"
    assert config["args"].keys() == FIELDS[enabled["name"]]
    # Go has a string here.
    assert isinstance(config["args"].get("defaultRequestsMultiplier", ""), str)
