from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.settings.parsing import mistakes, snapshot
from webhook.settings.model import (
    AuditSettings,
    Blackout,
    DriftSettings,
    EvictionSettings,
    ExplainSettings,
    FidelitySettings,
    InstancetypeSettings,
    KubeVirtSettings,
    MigrationSettings,
    SchedulerHealthSettings,
    SchedulerSettings,
    SchedulingSettings,
    ServerSettings,
    ServiceSettings,
    Settings,
    TlsSettings,
    WebhookSettings,
)
from webhook.settings.validation import model_of, read

EVERYTHING: dict[str, Any] = {
    "server": {"listen": "[::]:9443", "opsListen": "localhost:9090", "maxInFlight": 8, "shutdownSeconds": 5},
    "tls": {
        "certFile": "/tls/tls.crt",
        "keyFile": "/tls/tls.key",
        "secretName": "own-ca",
        "leafExpirationSeconds": 60,
        "caExpirationSeconds": 3600,
        "clientCaFile": "/client/ca.crt",
        "clientNames": ["apiserver", "other"],
    },
    "kubevirt": {"namespace": "openshift-cnv"},
    "excludedNamespaces": ["kube-system"],
    "schedulers": {
        "gpu.example": {"healthCheck": "lease gpu-system/gpu.scheduler", "assumeAlive": True},
        "batch": {"healthCheck": "pods"},
        "free": {"healthCheck": "off"},
    },
    "scheduling": {
        "clusterWide": True,
        "schedulerName": "batch",
        "virtualMachines": False,
        "virtualMachineInstances": True,
    },
    "instancetypes": {
        "clusterWide": True,
        "defaultInstancetype": "u1.medium",
        "defaultPreference": "VirtualMachinePreference/fedora",
        "defaultPreferenceScope": "all",
        "allowed": ["u1.*", "VirtualMachineInstancetype/*"],
        "missing": "deny",
        "expand": True,
        "virtualMachines": False,
        "virtualMachineInstances": False,
        "fidelityCheck": {"sample": 20, "everyMinutes": 5},
        "failurePolicy": "Fail",
    },
    "migration": {
        "clusterWide": True,
        "collision": "warn",
        "noEligibleNode": "ignore",
        "reservedKeys": "allow",
        "requireRight": True,
        "viaVirtctl": "deny",
        "maxUnfinished": 3,
        "failurePolicy": "Ignore",
    },
    "eviction": {
        "clusterWide": True,
        "requesters": ["sigs.k8s.io/descheduler", "balancer"],
        "coolDownSeconds": 60,
        "maxCoolDownSeconds": 600,
        "maxPerNamespace": 2,
        "maxPerCluster": 5,
        "blackouts": [{"days": ["Sun", "Mon"], "from": "22:00", "to": "06:00", "timeZone": "+02:00"}],
    },
    "explain": {"listen": "127.0.0.1:8090"},
    "audit": {"output": "/var/log/audit.jsonl", "maxBytes": 1_048_576, "keep": 1},
    "events": "on",
    "driftScan": {"everyMinutes": 30, "policyReports": False},
    "webhooks": {
        "service": {"namespace": "ops", "name": "hook", "port": 8443},
        "timeoutSeconds": 1,
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "example.com/tier", "operator": "In", "values": ["a", ""]},
                {"key": "tenant", "operator": "Exists"},
            ]
        },
    },
}


def test_the_defaults() -> None:
    lease = SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")
    declared = {"kubevirt": SchedulerSettings("kubevirt", lease, assume_alive=False)}
    assert snapshot({}) == Settings(
        server=ServerSettings("0.0.0.0:8443", "0.0.0.0:8080", 64, 10),
        tls=TlsSettings("", "", "self-signed", "kubevirt-webhook-ca", 7 * 86_400, 365 * 86_400, "", ()),
        webhooks=WebhookSettings(ServiceSettings("kubevirt-webhook", "kubevirt-webhook", 443), 3, ()),
        schedulers=declared,
        scheduling=SchedulingSettings(
            cluster_wide=False,
            scheduler_name="kubevirt",
            virtual_machines=True,
            virtual_machine_instances=False,
            schedulers=declared,
            kubevirt_namespace="",
        ),
        instancetypes=InstancetypeSettings(
            cluster_wide=False,
            default_instancetype="",
            default_preference="",
            default_preference_scope="unsized",
            allowed=None,
            missing="warn",
            expand=False,
            virtual_machines=True,
            virtual_machine_instances=True,
            fidelity_check=FidelitySettings(sample=0, every_minutes=10),
            failure_policy="Ignore",
        ),
        migration=MigrationSettings(
            cluster_wide=False,
            collision="deny",
            no_eligible_node="deny",
            reserved_keys="deny",
            require_right=False,
            via_virtctl="allow",
            max_unfinished=0,
            kubevirt_namespace="",
            failure_policy="Fail",
        ),
        eviction=EvictionSettings(
            cluster_wide=False,
            requesters=("sigs.k8s.io/descheduler",),
            cool_down_seconds=300,
            max_cool_down_seconds=3600,
            max_per_namespace=0,
            max_per_cluster=0,
            blackouts=(),
            kubevirt_namespace="",
        ),
        excluded_namespaces=frozenset(
            {"kube-system", "kube-public", "kube-node-lease", "kubevirt", "kubevirt-webhook"}
        ),
        digest="digest",
    )


def test_every_setting_of_the_file_is_read() -> None:
    lease = SchedulerHealthSettings("lease", "gpu-system", "gpu.scheduler")
    declared = {
        "gpu.example": SchedulerSettings("gpu.example", lease, assume_alive=True),
        "batch": SchedulerSettings("batch", SchedulerHealthSettings("pods")),
        "free": SchedulerSettings("free", SchedulerHealthSettings("off")),
    }
    assert snapshot(EVERYTHING) == Settings(
        server=ServerSettings("[::]:9443", "localhost:9090", 8, 5),
        tls=TlsSettings(
            *("/tls/tls.crt", "/tls/tls.key", "mounted", "own-ca", 60, 3600, "/client/ca.crt", ("apiserver", "other"))
        ),
        kubevirt=KubeVirtSettings("openshift-cnv"),
        schedulers=declared,
        explain=ExplainSettings("127.0.0.1:8090"),
        audit=AuditSettings(output="/var/log/audit.jsonl", max_bytes=1_048_576, keep=1),
        webhooks=WebhookSettings(
            ServiceSettings("ops", "hook", 8443),
            1,
            (
                {"key": "example.com/tier", "operator": "In", "values": ["a", ""]},
                {"key": "tenant", "operator": "Exists"},
            ),
        ),
        scheduling=SchedulingSettings(
            cluster_wide=True,
            scheduler_name="batch",
            virtual_machines=False,
            virtual_machine_instances=True,
            schedulers=declared,
            kubevirt_namespace="openshift-cnv",
        ),
        instancetypes=InstancetypeSettings(
            cluster_wide=True,
            default_instancetype="u1.medium",
            default_preference="VirtualMachinePreference/fedora",
            default_preference_scope="all",
            allowed=("u1.*", "VirtualMachineInstancetype/*"),
            missing="deny",
            expand=True,
            virtual_machines=False,
            virtual_machine_instances=False,
            fidelity_check=FidelitySettings(sample=20, every_minutes=5),
            failure_policy="Fail",
        ),
        migration=MigrationSettings(
            cluster_wide=True,
            collision="warn",
            no_eligible_node="ignore",
            reserved_keys="allow",
            require_right=True,
            via_virtctl="deny",
            max_unfinished=3,
            kubevirt_namespace="openshift-cnv",
            failure_policy="Ignore",
        ),
        eviction=EvictionSettings(
            cluster_wide=True,
            requesters=("sigs.k8s.io/descheduler", "balancer"),
            cool_down_seconds=60,
            max_cool_down_seconds=600,
            max_per_namespace=2,
            max_per_cluster=5,
            blackouts=(Blackout(("Sun", "Mon"), "22:00", "06:00", "+02:00"),),
            kubevirt_namespace="openshift-cnv",
        ),
        excluded_namespaces=frozenset({"kube-system", "openshift-cnv", "ops"}),
        digest="digest",
        events=True,
        drift_scan=DriftSettings(every_minutes=30, policy_reports=False),
    )


def test_null_means_absent() -> None:
    nulls: dict[str, Any] = {
        "server": None,
        "schedulers": None,
        "scheduling": {"schedulerName": None, "clusterWide": True},
        "webhooks": {"namespaceSelector": {"matchExpressions": None}},
    }

    assert snapshot(nulls) == snapshot({"scheduling": {"clusterWide": True}})


def test_snake_case_and_unknown_keys_are_refused_even_if_null() -> None:
    assert mistakes({"excluded_namespaces": None, "server": {"max_in_flight": 3}}) == [
        ("extra_forbidden", ("server", "max_in_flight")),
        ("extra_forbidden", ("excluded_namespaces",)),
    ]


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        (("webhooks", "timeoutSeconds"), (1, 3), (0, 4)),
        (("webhooks", "service", "port"), (1, 65535), (0, 65536)),
        (("server", "maxInFlight"), (1, 10_000), (0, 10_001)),
    ],
)
def test_ranges(path: tuple[str, ...], good: tuple[int, int], bad: tuple[int, int]) -> None:
    def nested(number: object) -> dict[str, Any]:
        value: Any = number
        for key in reversed(path):
            value = {key: value}
        assert isinstance(value, dict)
        return value

    for number in good:
        snapshot(nested(number))
    for number in bad:
        assert [loc for _, loc in mistakes(nested(number))] == [path]
    for wrong in (True, 2.0, "2"):
        assert mistakes(nested(wrong)) == [("int_type", path)]


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ({"key": "a", "operator": "In", "values": ["x"]}, None),
        ({"key": "a.b/c_D.e", "operator": "NotIn", "values": ["x-Y.z_1", ""]}, None),
        ({"key": "a", "operator": "Exists", "values": []}, None),
        ({"key": "a", "operator": "DoesNotExist"}, None),
        ({"key": "a", "operator": "In"}, "values-missing"),
        ({"key": "a", "operator": "NotIn", "values": []}, "values-missing"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "values-excluded"),
        ({"key": "a", "operator": "DoesNotExist", "values": ["x"]}, "values-excluded"),
        ({"key": "a", "operator": "in", "values": ["x"]}, "literal_error"),
        ({"operator": "Exists"}, "missing"),
        ({"key": "a"}, "missing"),
        ({"key": "", "operator": "Exists"}, "syntax"),
        ({"key": "a/b/c", "operator": "Exists"}, "syntax"),
        ({"key": "A/b", "operator": "Exists"}, "syntax"),
        ({"key": "x" * 64, "operator": "Exists"}, "syntax"),
        ({"key": "a", "operator": "In", "values": ["-"]}, "syntax"),
        ({"key": "a", "operator": "In", "values": "x"}, "tuple_type"),
        ({"key": "a", "operator": "In", "values": [1]}, "string_type"),
        ({"key": "a", "operator": "Exists", "value": "x"}, "extra_forbidden"),
    ],
)
def test_match_expressions(expression: dict[str, Any], wrong: str | None) -> None:
    value = {"webhooks": {"namespaceSelector": {"matchExpressions": [expression]}}}
    if wrong is None:
        (read,) = snapshot(value).webhooks.namespace_selector
        assert read == {name: part for name, part in expression.items() if part != []}
    else:
        assert [what for what, _ in mistakes(value)] == [wrong]


def test_the_model_can_t_be_changed() -> None:
    model = model_of(Settings).model_validate({})

    with pytest.raises(ValidationError):
        setattr(model, "events", "on")  # noqa: B010 - mypy does not know its fields


def test_every_setting_is_described() -> None:
    schema = model_of(Settings).model_json_schema()
    sections = [schema, *schema["$defs"].values()]

    for section in sections:
        assert section["additionalProperties"] is False
        for name, setting in section["properties"].items():
            described = setting.get("description") or schema["$defs"][setting["$ref"].rpartition("/")[2]]["description"]
            assert described.endswith("."), name


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda below: (
            st.lists(below)
            | st.dictionaries(st.sampled_from([*EVERYTHING, "healthCheck", "listen", "x"]) | st.text(), below)
        ),
    )
)
def test_nothing_but_validation_errors_come_out(value: Any) -> None:
    try:
        model = model_of(Settings).model_validate(value)
    except ValidationError:
        return
    assert isinstance(read(model), Settings)


@pytest.mark.parametrize("section", [{"sample": -1}, {"sample": 1001}, {"everyMinutes": 0}, {"everyMinutes": 1441}])
def test_the_fidelity_check_is_bounded(section: dict[str, int]) -> None:
    ((kind, place),) = mistakes({"instancetypes": {"fidelityCheck": section}})

    assert kind in ("greater_than_equal", "less_than_equal")
    assert place == ("instancetypes", "fidelityCheck", *section)


@pytest.mark.parametrize("requester", ["", 'x"] || true', "a b", "-a"])
def test_requesters_are_fit_for_a_condition(requester: str) -> None:
    assert mistakes({"eviction": {"requesters": [requester]}}) == [("syntax", ("eviction", "requesters", 0))]


def test_the_longest_cool_down_is_no_less_than_the_first() -> None:
    assert mistakes({"eviction": {"coolDownSeconds": 60, "maxCoolDownSeconds": 59}}) == [
        ("too-short", ("eviction", "maxCoolDownSeconds"))
    ]
    assert mistakes({"eviction": {"coolDownSeconds": 7200}})[0][0] == "too-short"
    assert [loc for _, loc in mistakes({"eviction": {"coolDownSeconds": -1}})] == [("eviction", "coolDownSeconds")]
