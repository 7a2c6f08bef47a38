from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.golden_files import Golden
from webhook import names
from webhook.errors import InputErrors
from webhook.settings import model as settings_model
from webhook.settings.file import default_settings, effective, parse
from webhook.settings.model import LayersSettings, RegistrySettings, SchedulerHealthSettings, Settings
from webhook.settings.validation import OWN_ERROR, Section, model_of, read


def snapshot(value: dict[str, Any]) -> Settings:
    settings = read(model_of(Settings).model_validate(value))
    assert isinstance(settings, Settings)
    return settings.completed("digest")


def mistakes(value: dict[str, Any]) -> list[tuple[str, tuple[int | str, ...]]]:
    with pytest.raises(ValidationError) as refused:
        model_of(Settings).model_validate(value)
    found = refused.value.errors(include_url=False)
    return [
        (details["ctx"]["code"] if details["type"] == OWN_ERROR else details["type"], details["loc"])
        for details in found
    ]


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
  maxPerNamespace: 0, maxPerCluster: 0, protectTransfersSeconds: 0, blackouts: []}
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
  maxCoolDownSeconds: 600, maxPerNamespace: 2, maxPerCluster: 5, protectTransfersSeconds: 3600}
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
    assert [(name, each.name) for name, each in made.schedulers.items()] == [("batch", "batch"), ("free", "free")]
    assert (made.events, made.digest) == (True, "digest")


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


FILES = {"certFile": "c", "keyFile": "k"}
OFF = {"healthCheck": "off"}
HEALTH_CHECK = "schedulers.kubevirt.healthCheck"
NO_HEALTH_CHECKS = ("", "Off", "lease", "lease a", "lease a/b/c", "lease A/b", "leasea/b", "lease a.b/c", "pods ")


@pytest.mark.parametrize(
    ("value", "said", "where"),
    [
        *(
            (nested(path, value), said, path)
            for path, value, said in (
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
                ("server.listen", "", "syntax"),
                ("explain.listen", "nonsense", "syntax"),
                ("tls.secretName", "A", "syntax"),
                ("tls.caExpirationSeconds", 604_800, "too-short"),
                ("tls.keyFile", "x", "counterpart-missing"),
                ("tls.clientNames", ["x"], "counterpart-missing"),
                ("tls.mode", "mounted", "mode-and-files"),
                *((HEALTH_CHECK, text, "syntax") for text in NO_HEALTH_CHECKS),
                *((HEALTH_CHECK, other, "string_type") for other in (True, 1, ["off"])),
            )
        ),
        # What becomes part of a match condition must not end it.
        *(
            (nested("eviction.requesters", [text]), "syntax", "eviction.requesters.0")
            for text in ("", 'x"] || true', "a b", "-a")
        ),
        ({"eviction": {"coolDownSeconds": 60, "maxCoolDownSeconds": 59}}, "too-short", "eviction.maxCoolDownSeconds"),
        ({"eviction": {"coolDownSeconds": 7200}}, "too-short", "eviction.max_cool_down_seconds"),
        # Listeners differ.
        *((nested("explain.listen", f"0.0.0.0:{port}"), "address-in-use", "explain") for port in (8443, 8080)),
        ({"server": {"listen": "a:1", "opsListen": "a:1"}}, "address-in-use", "server.opsListen"),
        ({"tls": {"certFile": "x"}}, "counterpart-missing", "tls.key_file"),
        ({"tls": {"clientCaFile": "x"}}, "counterpart-missing", "tls.client_names"),
        *(({"tls": {**FILES, "mode": mode}}, "mode-and-files", "tls.mode") for mode in ("managed", "self-signed")),
        ({"schedulers": {"kubevirt": {}}}, "missing", HEALTH_CHECK),
        (
            {"schedulers": {"default-scheduler": OFF, "kubevirt": OFF}},
            *("default-scheduler", "schedulers.default-scheduler.[key]"),
        ),
        ({"schedulers": {"a": OFF, "b": OFF}}, "undeclared", "scheduling"),
    ],
)
def test_mistakes(value: Any, said: str, where: str) -> None:
    assert [(code, ".".join(map(str, loc))) for code, loc in mistakes(value)] == [(said, where)]


def test_listeners_on_any_free_port_do_not_clash() -> None:
    made = snapshot({"server": {"listen": "a:0", "opsListen": "a:0"}, "explain": {"listen": "a:0"}})
    assert (made.server.ops_listen, made.explain.listen) == ("a:0", "a:0")


@pytest.mark.parametrize(("given", "on"), [("on", True), ("off", False), (True, True), (False, False), (None, False)])
def test_on_and_off(given: object, on: bool) -> None:
    assert snapshot({"events": given}).events is on


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


HOSTS = ["localhost", "a.b-c.example", "10.0.0.1", "::1", "fe80::1", "H", "a" * 63]
NO_HOSTS = ["", "-a", "a_b", "10.0.0", "1.2.3.400", "[::1]", "::g", "a" * 64, "héllo", "a..b", "a b"]
ADDRESSES = ["localhost:0", "0.0.0.0:8443", "[::]:8443", "a.b:65535", "[fe80::1]:80", "a-b.Example.com:80"]
NO_ADDRESSES = ["", "a", "80", ":8443", "a:", "a:65536", "a:a", "::1:80", "[::1]", "[10.0.0.1]:80", "[a]:80", "[]:80"]
NO_ADDRESSES += ["a:-1", "1.2.3:80", "1.2.3.256:80", "tcp://a:80", "a:123456"]
NO_ADDRESSES += ["a b:80", "a_b:80", "a:80 ", "a:٣", "-a:80"]
LOOPBACK = ["127.0.0.1:0", "[::1]:8090", "localhost:80"]
NO_LOOPBACK = ["0.0.0.0:1", "[::]:1", "127.0.0.1.example.com:1", "localhost.example:1", "", "::1"]


@pytest.mark.parametrize(
    ("predicate", "text", "is_true"),
    [
        (predicate, text, texts is good)
        for predicate, good, bad in (
            (settings_model.is_host, HOSTS, NO_HOSTS),
            (settings_model.is_address, ADDRESSES, NO_ADDRESSES),
            (settings_model.is_loopback, LOOPBACK, NO_LOOPBACK),
        )
        for texts in (good, bad)
        for text in texts
    ],
)
def test_hosts_and_addresses(predicate: Callable[[str], bool], text: str, is_true: bool) -> None:
    assert predicate(text) is is_true


@given(st.text(max_size=70))
def test_what_is_a_host_can_be_looked_up(text: str) -> None:
    if settings_model.is_host(text):
        text.encode("idna")


@pytest.mark.parametrize(
    ("tls", "mode"),
    [
        ({}, "self-signed"),
        ({"mode": None}, "self-signed"),
        ({"mode": "managed"}, "managed"),
        (FILES, "mounted"),
        ({**FILES, "mode": None}, "mounted"),
        ({**FILES, "mode": "mounted"}, "mounted"),
    ],
)
def test_where_the_certificate_comes_from(tls: dict[str, Any], mode: str) -> None:
    assert snapshot({"tls": tls}).tls.mode == mode


def layers(**section: Any) -> LayersSettings:
    return parse(yaml.safe_dump({"layers": section}).encode(), "s.yaml").layers


def test_it_is_off_without_an_address() -> None:
    assert default_settings().layers == LayersSettings() == layers()


def test_everything_has_its_place() -> None:
    found = layers(
        listen="0.0.0.0:8446",
        clientCaFile="/ca.crt",
        clientNames=["system:kube-scheduler"],
        schedulers=["kubevirt", "batch"],
        registries={
            "quay.io": {},
            "registry.example:5000": {
                "caFile": "/registry.crt",
                "plainHttp": True,
                "addresses": ["10.0.0.0/8", "fd00::1"],
                "tokenHosts": ["auth.example"],
                "redirectHosts": ["cdn.example:444"],
            },
        },
        pullSecrets="on",
        cacheDirectory="/cache",
        cacheBytes=2_000_000,
    )
    registry = RegistrySettings(
        ca_file="/registry.crt",
        plain_http=True,
        addresses=(ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::1")),
        token_hosts=("auth.example",),
        redirect_hosts=("cdn.example:444",),
    )
    assert found == LayersSettings(
        listen="0.0.0.0:8446",
        client_ca_file="/ca.crt",
        client_names=("system:kube-scheduler",),
        schedulers=("kubevirt", "batch"),
        registries={"quay.io": RegistrySettings(), "registry.example:5000": registry},
        pull_secrets=True,
        cache_directory="/cache",
        cache_bytes=2_000_000,
    )


@pytest.mark.parametrize(
    ("section", "where"),
    [
        # A client that may reach the listener must have a certificate.
        ({"listen": "0.0.0.0:8446"}, "layers.clientNames"),
        ({"listen": "127.0.0.1:8446", "clientCaFile": "/ca.crt"}, "layers.clientNames"),
        ({"listen": "127.0.0.1:8446", "clientNames": ["x"]}, "layers.clientNames"),
        ({"listen": "0.0.0.0:8443", "clientCaFile": "/ca.crt", "clientNames": ["x"]}, "layers.listen"),
        ({"listen": "x"}, "layers.listen"),
        ({"registries": {"quay.io/team": {}}}, "layers.registries"),
        ({"registries": {"https://quay.io": {}}}, "layers.registries"),
        ({"registries": {"Quay.io": {}}}, "layers.registries"),
        ({"registries": {"quay.io": {"addresses": ["10.0.0.1/8"]}}}, "layers.registries"),
        ({"registries": {"quay.io": {"addresses": ["everywhere"]}}}, "layers.registries"),
        ({"registries": {"quay.io": {"tokenHosts": ["https://auth.example/token"]}}}, "layers.registries"),
        ({"registries": {"quay.io": {"caFile": "relative"}}}, "layers.registries"),
        ({"cacheDirectory": "relative"}, "layers.cacheDirectory"),
        ({"cacheBytes": 1}, "layers.cacheBytes"),
        ({"schedulers": ["Not A Name"]}, "layers.schedulers"),
        ({"pullSecrets": "maybe"}, "layers.pullSecrets"),
        ({"registry": {}}, "layers.registry"),
    ],
)
def test_mistakes_of_layers_are_named(section: dict[str, Any], where: str) -> None:
    with pytest.raises(InputErrors) as caught:
        layers(**section)
    (mistake,) = caught.value.mistakes
    assert mistake.what.startswith(where)


def test_on_loopback_no_certificate_is_needed() -> None:
    assert layers(listen="127.0.0.1:8446").listen == "127.0.0.1:8446"


@pytest.mark.parametrize(
    ("health_check", "read"),
    [
        (False, SchedulerHealthSettings("off")),
        ("off", SchedulerHealthSettings("off")),
        ("pods", SchedulerHealthSettings("pods")),
        ("lease a/b", SchedulerHealthSettings("lease", "a", "b")),
        ("lease   a-1/b.c-d", SchedulerHealthSettings("lease", "a-1", "b.c-d")),
    ],
)
def test_health_checks(health_check: object, read: SchedulerHealthSettings) -> None:
    settings = snapshot({"schedulers": {"kubevirt": {"healthCheck": health_check}}})
    assert settings.scheduling.schedulers["kubevirt"] == settings_model.SchedulerSettings("kubevirt", read)


@pytest.mark.parametrize(("name", "good"), [("a.b-c", True), ("a" * 253, True), ("a" * 254, False), ("a..b", False)])
def test_schedulers_names(name: str, good: bool) -> None:
    value = {"schedulers": {name: {"healthCheck": "pods"}}, "scheduling": {"schedulerName": name}}
    if good:
        assert snapshot(value).scheduling.schedulers[name].name == name
    else:
        assert [loc for _, loc in mistakes(value)] == [("schedulers", name, "[key]"), ("scheduling", "schedulerName")]


@pytest.mark.parametrize(
    "value",
    [
        {"scheduling": {"schedulerName": "x"}},
        {"schedulers": {}, "scheduling": {"schedulerName": "x"}},
        {
            "schedulers": {"b": {"healthCheck": "off"}, "a": {"healthCheck": "off"}},
            "scheduling": {"schedulerName": "x"},
        },
    ],
    ids=["default", "none", "two"],
)
def test_the_scheduler_is_a_declared_one(value: dict[str, Any], golden: Golden) -> None:
    with pytest.raises(ValidationError) as refused:
        model_of(Settings).model_validate(value)
    (details,) = refused.value.errors()
    assert (details["ctx"]["code"], details["ctx"]["key"]) == ("undeclared", "schedulerName")
    golden(f"{details['ctx']['what']}; {details['ctx']['fix']}")


@pytest.mark.parametrize("scheduling", [{}, {"clusterWide": True}])
def test_the_only_declared_scheduler_is_the_default(scheduling: dict[str, Any]) -> None:
    made = snapshot({"schedulers": {"a": {"healthCheck": "off"}}, "scheduling": scheduling})
    assert made.scheduling.scheduler_name == "a"


def test_a_section_follows_the_namespaces_own_choices() -> None:
    section = snapshot({}).scheduling
    own = section.under({names.SCHEDULER_NAME_ANNOTATION: "batch", names.SPREAD_ANNOTATION: " zone "})
    assert (own.scheduler_name, own.spread) == ("batch", "zone")
    assert section.under({"other": "x"}) is section
