from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.builders import changed
from tests.golden_files import Golden
from webhook import names
from webhook.errors import InputErrors
from webhook.policies.eviction.settings import WEEK, Blackout, EvictionSettings
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.registry import BY_NAME
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.settings import fields
from webhook.settings.fields import OWN_ERROR
from webhook.settings.model import LayersSettings, RegistrySettings, Settings
from webhook.settings.schedulers import HealthCheck
from webhook.settings.validation import of_file
from webhook.settings_file import MODEL, default_settings, effective, parse


def test_a_copy_computes_anew_what_the_original_has_computed() -> None:
    original = Blackout(days=("Mon",), begin="08:00", end="10:00", time_zone="UTC")
    assert original.spans == ((480, 600),)
    assert original.model_copy(update={"end": "11:00"}).spans == ((480, 660),)
    assert original.spans == ((480, 600),)


def snapshot(value: dict[str, Any]) -> Settings:
    return of_file(value, MODEL).completed("digest")


def mistakes(value: dict[str, Any]) -> list[tuple[str, tuple[int | str, ...]]]:
    with pytest.raises(ValidationError) as refused:
        of_file(value, MODEL)
    found = refused.value.errors(include_url=False)
    return [
        (details["ctx"]["code"] if details["type"] == OWN_ERROR else details["type"], details["loc"])
        for details in found
    ]


# Every setting whose field has the file's value, with another one than its default.
PLAIN = """
server: {listen: "[::]:9443", opsListen: "localhost:9090", maxInFlight: 8, shutdownSeconds: 5}
tls: {certFile: /tls/tls.crt, keyFile: /tls/tls.key, mode: mounted, secretName: own-ca, leafExpirationSeconds: 60,
  caExpirationSeconds: 3600, clientCaFile: /client/ca.crt, clientNames: [apiserver, other]}
kubevirt: {namespace: openshift-cnv, version: v1.8.4}
naming: {clusterWide: true}
sizes: {clusterWide: true, requireInstancetype: true, failurePolicy: Fail}
defaults: {clusterWide: true, priorityClassName: vms, evictionStrategy: External, terminationGracePeriodSeconds: 5,
  cpuModel: Skylake-Server}
groups: {clusterWide: true}
scheduling: {clusterWide: true, schedulerName: batch, virtualMachines: false, virtualMachineInstances: true,
  spread: zone, spreadVirtualMachines: true, spreadVirtualMachineInstances: true}
instancetypes: {clusterWide: true, defaultInstancetype: u1.medium, defaultPreference: VirtualMachinePreference/fedora,
  defaultPreferenceScope: all, allowed: [u1.*, VirtualMachineInstancetype/*], missing: deny, expand: true,
  virtualMachines: false, virtualMachineInstances: false, fidelityCheck: {sample: 20, everyMinutes: 5},
  failurePolicy: Fail}
migration: {clusterWide: true, collision: warn, noEligibleNode: ignore, reservedKeys: allow, requireRight: true,
  viaVirtctl: deny, maxUnfinished: 3, maxInboundPerNode: 2, failurePolicy: Ignore}
eviction: {clusterWide: true, requesters: [sigs.k8s.io/descheduler, balancer], coolDownSeconds: 60,
  maxCoolDownSeconds: 600, maxPerNamespace: 2, maxPerCluster: 5, protectTransfersSeconds: 3600}
preemption: {clusterWide: true, requestMigrations: true, schedulers: [mine], taintControllers: [cleaner],
  deadlineSeconds: 60, windowSeconds: 0, maxPerCluster: 5, maxPriority: 1000}
headroom: {enabled: true, clusterWide: true, nodeLoss: false, migrationQuota: false}
admin: {listen: "127.0.0.1:8090", explain: false, page: false, metrics: true}
layers: {listen: "0.0.0.0:8446", clientCaFile: /ca.crt, clientNames: ["system:kube-scheduler"],
  schedulers: [kubevirt, batch], cacheDirectory: /cache, cacheBytes: 2000000}
webhooks: {service: {namespace: ops, name: hook, port: 8443}, timeoutSeconds: 1}
audit: {output: /var/log/audit.jsonl, maxBytes: 1048576, keep: 1}
driftScan: {everyMinutes: 30, policyReports: false}
"""
# The others, which tests of their own read.
OTHERS = (
    *("excludedNamespaces", "schedulers", "blackouts", "registries", "pullSecrets", "namespaceSelector"),
    *("events", "traces", "limits"),
    *("tolerations", "nodeSelector", "nodeAffinity", "rules"),
)


def nested(path: str, value: object) -> Any:
    """A file with one setting."""
    return reduce(lambda value, key: {key: value}, reversed(path.split(".")), value)


def test_the_defaults_are_a_file_of_settings() -> None:
    """docs/reference/settings.md has the default of each."""
    made = parse(yaml.safe_dump(effective()).encode(), "x")
    assert changed(made, digest="default") == default_settings()
    assert made.every_excluded_namespace == {
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "kubevirt",
        "kubevirt-webhook",
    }


def test_every_setting_of_the_file_is_read() -> None:
    value: dict[str, Any] = yaml.safe_load(PLAIN)
    value["schedulers"] = {"batch": {"healthCheck": "pods"}, "free": {"healthCheck": "off"}}
    made = snapshot(value | {"excludedNamespaces": ["kube-system"], "events": "on"})

    def check(given: dict[str, Any], defaults: dict[str, Any], read: Any, where: str = "") -> None:
        missing = [f"{where}{key}" for key in defaults.keys() - {*given, *OTHERS}]
        assert sorted(missing) == [], "add each to PLAIN, with another value than its default"
        for key, setting in given.items():
            field = getattr(read, re.sub("([A-Z])", r"_\1", key).lower())
            if isinstance(setting, dict):
                check(setting, defaults[key], field, f"{where}{key}.")
            else:
                expected = tuple(setting) if isinstance(setting, list) else setting
                assert (field, setting == defaults[key]) == (expected, False)

    del value["schedulers"]
    check(value, effective(), made)
    policies = (made.of(SchedulingSettings), made.of(MigrationSettings), made.of(EvictionSettings))
    assert {policy.kubevirt_namespace for policy in policies} == {"openshift-cnv"}
    assert made.every_excluded_namespace == {"kube-system", "openshift-cnv", "ops"}
    assert made.of(SchedulingSettings).schedulers == made.schedulers
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


@pytest.mark.parametrize(
    "path",
    [
        *("digest", "scheduling.schedulers", "schedulers.kubevirt.name"),
        *(f"{policy}.kubevirtNamespace" for policy in BY_NAME),
    ],
)
def test_what_sections_take_from_each_other_is_nothing_that_a_file_may_have(path: str) -> None:
    value = nested(path, "x")
    if path.startswith("schedulers"):
        value["schedulers"]["kubevirt"]["healthCheck"] = "off"
    assert mistakes(value) == [("extra_forbidden", tuple(path.split(".")))]
    shown = json.dumps([effective()["scheduling"], Settings.model_json_schema()["$defs"]])
    assert '"kubevirtNamespace"' not in shown


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
        (read,) = snapshot(value).webhooks.namespace_selector.match_expressions
        assert read.manifest() == {name: part for name, part in expression.items() if part != []}
    else:
        assert [what for what, _ in mistakes(value)] == [wrong]


def test_the_model_can_t_be_changed() -> None:
    settings = of_file({}, MODEL)
    with pytest.raises(ValidationError):
        settings.events = True


def test_every_setting_is_described() -> None:
    schema = Settings.model_json_schema()
    sections = [schema, *schema["$defs"].values()]
    for section in sections:
        assert section["additionalProperties"] is False
        for name, setting in section["properties"].items():
            described = setting.get("description") or schema["$defs"][setting["$ref"].rpartition("/")[2]]["description"]
            assert described.endswith("."), name


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
                *(("events", other, "literal_error") for other in ("yes", 1, 0, 1.0, ["on"])),
                ("driftScan.everyMinutes", -1, "greater_than_equal"),
                ("driftScan.everyMinutes", 1441, "less_than_equal"),
                ("driftScan.policyReports", "yes", "bool_type"),
                ("eviction.coolDownSeconds", -1, "greater_than_equal"),
                ("webhooks.service.name", "1a", "syntax"),
                ("server.listen", "", "syntax"),
                ("admin.listen", "nonsense", "syntax"),
                ("tls.secretName", "A", "syntax"),
                ("tls.caExpirationSeconds", 604_800, "too-short"),
                ("tls.keyFile", "x", "counterpart-missing"),
                ("tls.clientNames", ["x"], "counterpart-missing"),
                ("tls.mode", "mounted", "mode-and-files"),
                *((path, "/a\0b", "syntax") for path in ("audit.output", "layers.cacheDirectory")),
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
        *((nested("admin.listen", f"0.0.0.0:{port}"), "address-in-use", "admin") for port in (8443, 8080)),
        ({"server": {"listen": "a:1", "opsListen": "a:1"}}, "address-in-use", "server.opsListen"),
        (
            {"admin": {"listen": "127.0.0.1:8446"}, "layers": {"listen": "127.0.0.1:8446"}},
            *("address-in-use", "layers"),
        ),
        (
            {"admin": {"listen": "a:1", "explain": False, "page": False}},
            *("nothing-to-serve", "admin.metrics"),
        ),
        # Metrics would stay where they are.
        ({"admin": {"metrics": True}}, "counterpart-missing", "admin.metrics"),
        ({"admin": {"listen": "x", "metrics": True}}, "syntax", "admin.listen"),
        # A client without a certificate has the empty name.
        *(
            ({section: {"clientCaFile": "/x", "clientNames": ["a", ""]}}, "syntax", f"{section}.clientNames.1")
            for section in ("tls", "layers")
        ),
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
    made = snapshot({"server": {"listen": "a:0", "opsListen": "a:0"}, "admin": {"listen": "a:0"}})
    assert (made.server.ops_listen, made.admin.listen) == ("a:0", "a:0")


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
            assert name in snapshot(value).every_excluded_namespace
        else:
            ((code, _),) = mistakes(value)
            assert code == ("too-long" if len(name) > 63 else "syntax")


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
            (fields.is_host, HOSTS, NO_HOSTS),
            (fields.is_address, ADDRESSES, NO_ADDRESSES),
            (fields.is_loopback, LOOPBACK, NO_LOOPBACK),
        )
        for texts in (good, bad)
        for text in texts
    ],
)
def test_hosts_and_addresses(predicate: Callable[[str], bool], text: str, is_true: bool) -> None:
    assert predicate(text) is is_true


@given(st.text(max_size=70))
def test_what_is_a_host_can_be_looked_up(text: str) -> None:
    if fields.is_host(text):
        text.encode("idna")


@pytest.mark.parametrize(
    ("tls", "mode"),
    [
        *(({}, "self-signed"), ({"mode": None}, "self-signed"), ({"mode": "managed"}, "managed"), (FILES, "mounted")),
        *(({**FILES, "mode": None}, "mounted"), ({**FILES, "mode": "mounted"}, "mounted")),
    ],
)
def test_where_the_certificate_comes_from(tls: dict[str, Any], mode: str) -> None:
    assert snapshot({"tls": tls}).tls.mode == mode


def layers(**section: Any) -> LayersSettings:
    return parse(yaml.safe_dump({"layers": section}).encode(), "s.yaml").layers


def test_layers_are_off_without_an_address() -> None:
    assert default_settings().layers == LayersSettings() == layers()


def test_a_registry_has_what_its_client_needs() -> None:
    given = {"caFile": "/registry.crt", "plainHttp": True, "addresses": ["10.0.0.0/8", "fd00::1"]}
    given |= {"tokenHosts": ["auth.example"], "redirectHosts": ["cdn.example:444"]}
    registry = RegistrySettings(
        ca_file="/registry.crt",
        plain_http=True,
        addresses=(ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::1")),
        token_hosts=("auth.example",),
        redirect_hosts=("cdn.example:444",),
    )
    expected = LayersSettings(
        registries={"quay.io": RegistrySettings(), "registry.example:5000": registry}, pull_secrets=True
    )
    assert layers(registries={"quay.io": {}, "registry.example:5000": given}, pullSecrets="on") == expected


@pytest.mark.control("strangers-ask-for-scores")
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
        *((False, HealthCheck("off")), ("off", HealthCheck("off")), ("pods", HealthCheck("pods"))),
        *(("lease a/b", HealthCheck("lease", "a", "b")), ("lease   a-1/b.c-d", HealthCheck("lease", "a-1", "b.c-d"))),
    ],
)
def test_health_checks(health_check: object, read: HealthCheck) -> None:
    settings = snapshot({"schedulers": {"kubevirt": {"healthCheck": health_check}}})
    scheduler = settings.of(SchedulingSettings).schedulers["kubevirt"]
    assert (scheduler.name, scheduler.watched) == ("kubevirt", read)


@pytest.mark.parametrize(("name", "good"), [("a.b-c", True), ("a" * 253, True), ("a" * 254, False), ("a..b", False)])
def test_schedulers_names(name: str, good: bool) -> None:
    value = {"schedulers": {name: {"healthCheck": "pods"}}, "scheduling": {"schedulerName": name}}
    if good:
        assert snapshot(value).of(SchedulingSettings).schedulers[name].name == name
    else:
        assert [loc for _, loc in mistakes(value)] == [("schedulers", name, "[key]"), ("scheduling", "schedulerName")]


@pytest.mark.parametrize(
    "value",
    [
        {"scheduling": {"schedulerName": "x"}},
        {"schedulers": {}, "scheduling": {"schedulerName": "x"}},
        {"schedulers": {"b": OFF, "a": OFF}, "scheduling": {"schedulerName": "x"}},
    ],
    ids=["default", "none", "two"],
)
def test_the_scheduler_is_a_declared_one(value: dict[str, Any], golden: Golden) -> None:
    with pytest.raises(ValidationError) as refused:
        of_file(value, MODEL)
    (details,) = refused.value.errors()
    assert (details["ctx"]["code"], details["ctx"]["key"]) == ("undeclared", "schedulerName")
    golden(f"{details['ctx']['what']}; {details['ctx']['fix']}")


@pytest.mark.parametrize("scheduling", [{}, {"clusterWide": True}])
def test_the_only_declared_scheduler_is_the_default(scheduling: dict[str, Any]) -> None:
    made = snapshot({"schedulers": {"a": {"healthCheck": "off"}}, "scheduling": scheduling})
    assert made.of(SchedulingSettings).scheduler_name == "a"


def test_a_section_follows_the_namespaces_own_choices() -> None:
    section = snapshot({}).of(SchedulingSettings)
    own = section.with_annotations({names.SCHEDULER_NAME_ANNOTATION: "batch", names.SPREAD_ANNOTATION: " zone "})
    assert (own.scheduler_name, own.spread) == ("batch", "zone")
    assert section.with_annotations({"other": "x"}) is section


HOUR, DAY = 60, 24 * 60


@pytest.mark.parametrize(
    ("fields", "spans"),
    [
        ({"days": ["Mon"], "from": "08:00", "to": "18:00"}, ((8 * HOUR, 18 * HOUR),)),
        ({"days": ["Mon"], "from": "00:00", "to": "24:00"}, ((0, DAY),)),
        ({"days": ["Mon"], "from": "18:00", "to": "00:00"}, ((18 * HOUR, DAY),)),
        ({"days": ["Mon"], "from": "22:00", "to": "06:00"}, ((22 * HOUR, DAY + 6 * HOUR),)),
        ({"days": ["Sun"], "from": "22:00", "to": "24:00"}, ((WEEK - 2 * HOUR, WEEK),)),
        ({"days": ["Sun"], "from": "22:00", "to": "06:00"}, ((0, 6 * HOUR), (WEEK - 2 * HOUR, WEEK))),
        ({"days": ["Mon"], "from": "01:00", "to": "03:00", "timeZone": "+02:00"}, ((0, HOUR), (WEEK - HOUR, WEEK))),
        ({"days": ["Sun"], "from": "20:00", "to": "21:30", "timeZone": "-03:30"}, ((0, HOUR), (WEEK - 30, WEEK))),
        ({"days": ["Tue", "Mon"], "from": "00:00", "to": "00:01"}, ((0, 1), (DAY, DAY + 1))),
    ],
)
def test_minutes_of_the_week(fields: dict[str, Any], spans: tuple[tuple[int, int], ...]) -> None:
    assert Blackout.model_validate(fields).spans == spans


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("{from: 8:00, to: '18:00'}", "from"),
        ("{from: 24:01, to: '18:00'}", "from"),
        ("{from: 22:00, to: 22:00}", "to"),
        ("{from: 22:00}", "to"),
        ("{from: 22:00, to: 23:00, days: [mon]}", "days[0]"),
        ("{from: 22:00, to: 23:00, timeZone: Europe/Berlin}", "timeZone"),
        ("{from: 22:00, to: 23:00, timeZone: '+15:00'}", "timeZone"),
        ("{from: 22:00, to: 23:00, days: []}", "days"),
    ],
)
def test_mistakes_of_a_blackout(written: str, key: str, golden: Golden) -> None:
    with pytest.raises(InputErrors) as refused:
        parse(f"eviction:\n  blackouts:\n  - {written}\n".encode(), "settings.yaml")
    (error,) = refused.value.mistakes
    assert error.where == "settings.yaml:3"
    assert error.what.startswith(f"eviction.blackouts[0].{key}: ")
    golden(str(error))


def test_times_need_no_quotes() -> None:
    written = b"eviction: {blackouts: [{from: 22:00, to: 06:00, timeZone: +02:00}]}"
    (made,) = parse(written, "settings.yaml").of(EvictionSettings).blackouts
    assert made.text == "every day from 22:00 to 06:00 +02:00"
