from __future__ import annotations

import re
from functools import reduce
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.settings.parsing import mistakes, snapshot
from webhook.settings.file import default_settings, effective, parse
from webhook.settings.model import Settings
from webhook.settings.validation import Section, model_of, read

DEFAULTS = """
server: {listen: "0.0.0.0:8443", opsListen: "0.0.0.0:8080", maxInFlight: 64, shutdownSeconds: 10}
tls: {certFile: "", keyFile: "", mode: self-signed, secretName: kubevirt-webhook-ca, leafExpirationSeconds: 604800,
  caExpirationSeconds: 31536000, clientCaFile: "", clientNames: []}
kubevirt: {namespace: "", version: ""}
excludedNamespaces: [kube-system, kube-public, kube-node-lease]
schedulers:
  kubevirt: {healthCheck: lease kubevirt-scheduler/kubevirt-scheduler, assumeAlive: false, onlyByWebhook: false}
scheduling: {clusterWide: false, schedulerName: kubevirt, virtualMachines: true, virtualMachineInstances: false,
  spread: "off", spreadVirtualMachines: false, spreadVirtualMachineInstances: false}
instancetypes: {clusterWide: false, defaultInstancetype: "", defaultPreference: "", defaultPreferenceScope: unsized,
  allowed: null, missing: warn, expand: false, virtualMachines: true, virtualMachineInstances: true,
  fidelityCheck: {sample: 0, everyMinutes: 10}, failurePolicy: Ignore}
migration: {clusterWide: false, collision: deny, noEligibleNode: deny, reservedKeys: deny, requireRight: false,
  viaVirtctl: allow, maxUnfinished: 0, failurePolicy: Fail}
eviction: {clusterWide: false, requesters: [sigs.k8s.io/descheduler], coolDownSeconds: 300, maxCoolDownSeconds: 3600,
  maxPerNamespace: 0, maxPerCluster: 0, blackouts: []}
explain: {listen: ""}
metrics: {listen: ""}
page: {listen: ""}
layers: {listen: "", clientCaFile: "", clientNames: [], schedulers: [kubevirt], registries: {}, pullSecrets: "off",
  cacheDirectory: "", cacheBytes: 67108864}
webhooks: {service: {namespace: kubevirt-webhook, name: kubevirt-webhook, port: 443}, timeoutSeconds: 3,
  namespaceSelector: {matchExpressions: []}}
audit: {output: stdout, maxBytes: 104857600, keep: 5}
events: "off"
traces: "off"
driftScan: {everyMinutes: 0, policyReports: true}
"""
# Every setting whose field has the file's value, with another one than its default.
PLAIN = """
server: {listen: "[::]:9443", opsListen: "localhost:9090", maxInFlight: 8, shutdownSeconds: 5}
tls: {certFile: /tls/tls.crt, keyFile: /tls/tls.key, mode: mounted, secretName: own-ca, leafExpirationSeconds: 60,
  caExpirationSeconds: 3600, clientCaFile: /client/ca.crt, clientNames: [apiserver, other]}
kubevirt: {namespace: openshift-cnv, version: v1.8.4}
scheduling: {clusterWide: true, schedulerName: batch, virtualMachines: false, virtualMachineInstances: true,
  spread: zone, spreadVirtualMachines: true, spreadVirtualMachineInstances: true}
instancetypes: {clusterWide: true, defaultInstancetype: u1.medium, defaultPreference: VirtualMachinePreference/fedora,
  defaultPreferenceScope: all, allowed: [u1.*, VirtualMachineInstancetype/*], missing: deny, expand: true,
  virtualMachines: false, virtualMachineInstances: false, fidelityCheck: {sample: 20, everyMinutes: 5},
  failurePolicy: Fail}
migration: {clusterWide: true, collision: warn, noEligibleNode: ignore, reservedKeys: allow, requireRight: true,
  viaVirtctl: deny, maxUnfinished: 3, failurePolicy: Ignore}
eviction: {clusterWide: true, requesters: [sigs.k8s.io/descheduler, balancer], coolDownSeconds: 60,
  maxCoolDownSeconds: 600, maxPerNamespace: 2, maxPerCluster: 5}
explain: {listen: "127.0.0.1:8090"}
metrics: {listen: "127.0.0.1:8091"}
page: {listen: "127.0.0.1:8092"}
webhooks: {service: {namespace: ops, name: hook, port: 8443}, timeoutSeconds: 1}
audit: {output: /var/log/audit.jsonl, maxBytes: 1048576, keep: 1}
driftScan: {everyMinutes: 30, policyReports: false}
"""
# The others, which tests of their own read.
OTHERS = ("excludedNamespaces", "schedulers", "blackouts", "layers", "namespaceSelector", "events", "traces")


def nested(path: str, value: object) -> Any:
    """A file with one setting."""
    return reduce(lambda value, key: {key: value}, reversed(path.split(".")), value)


def test_the_defaults() -> None:
    assert effective() == yaml.safe_load(DEFAULTS)
    assert list(effective()) == list(yaml.safe_load(DEFAULTS)), "in the order of the reference"
    made = parse(DEFAULTS.encode(), "x")
    assert msgspec.structs.replace(made, digest="default") == default_settings()
    assert made.excluded_namespaces == {"kube-system", "kube-public", "kube-node-lease", "kubevirt", "kubevirt-webhook"}


def test_every_setting_of_the_file_is_read() -> None:
    value: dict[str, Any] = yaml.safe_load(PLAIN)
    value["schedulers"] = {"batch": {"healthCheck": "pods"}, "free": {"healthCheck": "off"}}
    made = snapshot(value | {"excludedNamespaces": ["kube-system"], "events": "on"})

    def check(given: dict[str, Any], defaults: dict[str, Any], read: Any) -> None:
        assert given.keys() | {*OTHERS} >= defaults.keys()
        for key, setting in given.items():
            field = getattr(read, re.sub("([A-Z])", r"_\1", key).lower())
            if isinstance(setting, dict):
                check(setting, defaults[key], field)
            else:
                assert (field, setting == defaults[key]) == (
                    tuple(setting) if isinstance(setting, list) else setting,
                    False,
                )

    del value["schedulers"]
    check(value, yaml.safe_load(DEFAULTS), made)
    assert {policy.kubevirt_namespace for policy in (made.scheduling, made.migration, made.eviction)} == {
        "openshift-cnv"
    }
    assert made.excluded_namespaces == {"kube-system", "openshift-cnv", "ops"}
    assert made.scheduling.schedulers == made.schedulers
    assert (*made.schedulers, made.schedulers["batch"].name, made.events, made.digest) == (
        "batch",
        "free",
        "batch",
        True,
        "digest",
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
        ("webhooks.timeoutSeconds", (1, 3), (0, 4)),
        ("webhooks.service.port", (1, 65535), (0, 65536)),
        ("server.maxInFlight", (1, 10_000), (0, 10_001)),
    ],
)
def test_ranges(path: str, good: tuple[int, int], bad: tuple[int, int]) -> None:
    where = tuple(path.split("."))
    for number in good:
        snapshot(nested(path, number))
    for number in bad:
        assert [loc for _, loc in mistakes(nested(path, number))] == [where]
    for wrong in (True, 2.0, "2"):
        assert mistakes(nested(path, wrong)) == [("int_type", where)]


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
            st.lists(below) | st.dictionaries(st.sampled_from([*effective(), "healthCheck", "x"]) | st.text(), below)
        ),
    )
)
def test_nothing_but_validation_errors_come_out(value: Any) -> None:
    try:
        model = model_of(Settings).model_validate(value)
    except ValidationError:
        return
    assert isinstance(read(model), Settings)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("instancetypes.fidelityCheck.sample", -1, "greater_than_equal"),
        ("instancetypes.fidelityCheck.sample", 1001, "less_than_equal"),
        ("instancetypes.fidelityCheck.everyMinutes", 0, "greater_than_equal"),
        ("instancetypes.fidelityCheck.everyMinutes", 1441, "less_than_equal"),
        ("audit.output", "audit.jsonl", "syntax"),
        ("audit.maxBytes", 1_000_000, "greater_than_equal"),
        ("audit.keep", 0, "greater_than_equal"),
        ("audit.keep", 101, "less_than_equal"),
        ("events", "yes", "literal_error"),
        ("driftScan.everyMinutes", -1, "greater_than_equal"),
        ("driftScan.everyMinutes", 1441, "less_than_equal"),
        ("driftScan.policyReports", "yes", "bool_type"),
        ("eviction.coolDownSeconds", -1, "greater_than_equal"),
        ("webhooks.service.name", "1a", "syntax"),
    ],
)
def test_mistakes(path: str, value: Any, said: str) -> None:
    assert mistakes(nested(path, value)) == [(said, tuple(path.split(".")))]


@pytest.mark.parametrize(("given", "on"), [("on", True), ("off", False), (True, True), (False, False), (None, False)])
def test_on_and_off(given: object, on: bool) -> None:
    assert snapshot({"events": given}).events is on


# What becomes part of a match condition must not end it.
@pytest.mark.parametrize("requester", ["", 'x"] || true', "a b", "-a"])
def test_requesters_are_fit_for_a_condition(requester: str) -> None:
    assert mistakes({"eviction": {"requesters": [requester]}}) == [("syntax", ("eviction", "requesters", 0))]


def test_the_longest_cool_down_is_no_less_than_the_first() -> None:
    for section in ({"coolDownSeconds": 60, "maxCoolDownSeconds": 59}, {"coolDownSeconds": 7200}):
        assert mistakes({"eviction": section})[0][0] == "too-short"


NAMES = [("a", True), ("a-1", True), ("1a", True), ("a" * 63, True), ("a" * 64, False), ("", False)]
NAMES += [(name, False) for name in ("-a", "a-", "A", "a_b", "a.b", "a\n")]


@pytest.mark.parametrize(("name", "good"), NAMES)
def test_names_of_namespaces(name: str, good: bool) -> None:
    values: list[dict[str, Any]] = [{"excludedNamespaces": [name]}, nested("webhooks.service.namespace", name)]
    # That of KubeVirt may be empty.
    values += [nested("kubevirt.namespace", name)] if name else []
    for value in values:
        if good:
            assert name in snapshot(value).excluded_namespaces
        else:
            ((code, _),) = mistakes(value)
            assert code == ("too-long" if len(name) > 63 else "syntax")


@pytest.mark.parametrize("value", [{"some_number": 2}, {"other": None}, {"someNumber": "2"}, []])
def test_a_section_takes_camel_case_and_null_and_nothing_else(value: object) -> None:
    class Example(Section):
        some_number: int = 1

    assert Example.model_validate({"someNumber": None}).some_number == 1
    assert Example.model_validate({"someNumber": 2}).some_number == 2
    with pytest.raises(ValidationError):
        Example.model_validate(value)
