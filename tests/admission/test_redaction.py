from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission import redaction
from webhook.admission.decision import Change
from webhook.admission.redaction import MAX_DEPTH, REDACTED, TOO_DEEP, redact, redact_at

SECRET = "hunter2"


def test_copies_and_secrets() -> None:
    applied = {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "a": "b"}}}
    secret = {"kind": "Secret", "data": {"k": SECRET}, "stringData": {"k": SECRET}}
    assert [*redact(applied)["metadata"]["annotations"].values()] == [REDACTED, "b"]
    assert SECRET not in str(redact(secret))
    assert applied["metadata"]["annotations"] == {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "a": "b"}
    # Arguments that follow a telling flag.
    value = {"args": ["--user", "me", "--password", SECRET, "--verbose", "-token", f"{SECRET} {SECRET}"]}
    assert redact(value) == {"args": ["--user", "me", "--password", REDACTED, "--verbose", "-token", REDACTED]}


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIhunter2 me@home"


@pytest.mark.parametrize(
    "key",
    [
        *("kubevirt.io/ignitiondata", "example.com/cloud-init", "cloud-config", "user-data", "networkData"),
        *("example.com/admin-password", "PASSWD", "db-passphrase", "sysprep.kubevirt.io/unattend", "ssh-key"),
        *("sshAuthorizedKeys", "api-token", "x/secret", "private-key", "apiKey", "credentials"),
    ],
)
def test_annotations_whose_key_tells(key: str) -> None:
    kept = {"app": "till", "empty-token": ""}
    metadata = {where: {key: SECRET} | kept for where in ("annotations", "labels")}
    assert redact({"spec": {"template": {"metadata": metadata}}})["spec"]["template"]["metadata"] == {
        where: {key: REDACTED} | kept for where in metadata
    }


@pytest.mark.parametrize(
    "text",
    [
        *(KEY, "ecdsa-sha2-nistp256 AAAAE2VjZHNhhunter2", "sk-ssh-ed25519@openssh.com AAAAhunter2"),
        "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n-----END OPENSSH PRIVATE KEY-----",
        *("-----BEGIN PRIVATE KEY-----\nhunter2", "root:$6$salt$hunter2:19000::"),
        *("$2b$12$hunter2hunter2", "$y$j9T$hunter2$x", "#cloud-config\npassword: hunter2\n"),
        *("chpasswd: {expire: false, list: [root:hunter2]}", "<unattend><wcm:AutoLogon>hunter2"),
        "<AdministratorPassword><Value>hunter2</Value></AdministratorPassword>",
        '{"ignition": {"version": "3.4.0"}, "passwd": "hunter2"}',
        "docker://me:hunter2@registry.example.com/image",
    ],
)
def test_what_looks_like_a_secret_is_none_to_show_wherever_it_stands(text: str) -> None:
    for vm in (
        {"metadata": {"annotations": {"note": text}}},
        {"spec": {"template": {"spec": {"volumes": [{"name": "v", "odd": {"deep": [text]}}]}}}},
        {"spec": {"dataVolumeTemplates": [{"spec": {"source": {"http": {"url": text}}}}]}},
    ):
        assert SECRET not in str(redact(vm))
        assert "<redacted" in str(redact(vm))


def test_headers_that_log_in() -> None:
    source = {"http": {"url": "https://example.com/x", "extraHeaders": [f"X-Auth: {SECRET}"], "secretRef": "s"}}
    assert redact({"source": source}) == {"source": {"http": source["http"] | {"extraHeaders": REDACTED}}}
    # Only harmless headers of a probe are shown.
    names = ("Accept", "Accept-Language", "Host", "User-Agent", "X-Vault", "Authorization")
    headers = [{"name": name, "value": "v"} for name in names]
    shown = redact({"httpGet": {"httpHeaders": headers}})["httpGet"]["httpHeaders"]
    assert [header["value"] for header in shown] == ["v"] * 4 + [REDACTED] * 2
    assert redact_at(("readinessProbe", "httpGet", "httpHeaders"), headers) == shown
    assert redact({"env": [{"name": "X_VAULT", "value": "v"}]}) == {"env": [{"name": "X_VAULT", "value": "v"}]}


SOURCE = {"source": {"secret": {"secretName": "s"}}}
REFERENCES = {
    "volumes": [
        {"name": "c", "cloudInitNoCloud": {"secretRef": {"name": "s"}, "networkDataSecretRef": {"name": "n"}}},
        {"name": "s", "sysprep": {"secret": {"name": "unattend"}}},
        {"name": "p", "secret": {"secretName": "s"}},
        {"name": "i", "containerDisk": {"image": "registry.example.com:5000/ssh/server:13", "imagePullSecret": "p"}},
    ],
    "accessCredentials": [{"sshPublicKey": {**SOURCE, "propagationMethod": {"noCloud": {}}}}, {"userPassword": SOURCE}],
}


@pytest.mark.parametrize(
    "value", [None, 1, "x", [], {}, {"kind": "ConfigMap", "data": {"a": "b"}}, {"userData": ""}, REFERENCES]
)
def test_the_rest_stays(value: Any) -> None:
    assert redact(value) == value


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        (("spec", "schedulerName"), "kubevirt", "kubevirt"),
        (("metadata", "annotations", "example.com/password"), SECRET, REDACTED),
        (("metadata", "annotations", "example.com/password"), "", ""),
        (("metadata", "annotations", "app"), SECRET, SECRET),
        (("metadata", "annotations"), {"password": SECRET, "app": "x"}, {"password": REDACTED, "app": "x"}),
        (("spec", "x", "userData"), SECRET, REDACTED),
        (("spec", "x", "extraHeaders"), [SECRET], REDACTED),
        (("spec", "x", "extraHeaders"), [], []),
        (("spec", "hostname"), f"x://u:{SECRET}@h", "x://<redacted>@h"),
        (("userData",), None, None),
        (("spec", "cpu"), 2, 2),
        (("spec", "volumes"), [{"cloudInit": {"userData": SECRET}}], [{"cloudInit": {"userData": REDACTED}}]),
        # A path through a secret is one.
        (("spec", "userData", "deep"), SECRET, REDACTED),
        ((), {"userData": SECRET}, {"userData": REDACTED}),
    ],
)
def test_a_value_alone_is_told_by_its_path(path: tuple[str, ...], value: Any, shown: Any) -> None:
    assert redact_at(path, value) == shown


def test_what_holds_no_secret_is_not_copied() -> None:
    # As a decoder makes them: equal texts, each an object of its own.
    value: dict[str, Any] = {"cores": [1, 2], "models": [f"host-{word}" for word in ("model", "model")]}
    assert value["models"][0] is not value["models"][1]
    assert redact_at(("spec", "cpu"), value) is value
    assert redact(value) is value


_SECRETS = st.sampled_from(["userData", "userDataBase64", "networkData", "networkDataBase64", "password", "token"])
places = st.recursive(
    _SECRETS.map(lambda key: {key: SECRET})
    | st.sampled_from([KEY, f"#cloud-config\n{SECRET}", f"https://u:{SECRET}@host/"]),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)  # as reports have them
        | st.dictionaries(st.sampled_from(["spec", "volumes", "annotations", "x"]), inner, min_size=1)
    ),
)


@given(places)
def test_no_secret_is_shown_wherever_it_stands(value: Any) -> None:
    assert SECRET not in str(redact(value))


def nested(levels: int, inner: Any, *, lists: bool = False) -> Any:
    for _ in range(levels):
        inner = [inner] if lists else {"x": inner}
    return inner


@pytest.mark.control("slow-redaction")
@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("key", ["x", "annotations"])
def test_no_depth_is_too_much(lists: bool, key: str) -> None:
    # Python 3.14 counts the bytes of its stack instead of levels, and encodes 100,000 lists in each other.
    value = {key: nested(400_000 if lists else 100_000, SECRET, lists=lists)}
    for shown in (redact(value), redact_at(("spec",), value), Change(("spec",), value, value, "r").redact()):
        assert TOO_DEEP in str(shown)
        assert SECRET not in str(shown)
    assert redact(nested(MAX_DEPTH, "leaf", lists=lists)) == nested(MAX_DEPTH, "leaf", lists=lists)
    within: Any = SECRET
    for _ in range(10_000):
        within = {"annotations": {"labels": within}}
    assert TOO_DEEP in str(redact(within))


@pytest.mark.control("slow-redaction")
def test_an_audit_line_takes_no_more_work_than_it_can_show() -> None:
    many = [{"n": number} for number in range(redaction.MAX_VALUES)]
    long = [f"token {'x' * 1000}{number}" for number in range(redaction.MAX_SEARCHED // 1000 + 10)]
    assert redaction.TOO_MUCH in str(redact_at(("spec", "volumes"), many))
    assert redact_at(("spec", "volumes"), many, bounded=False) is many
    assert redact_at(("spec", "volumes"), many[:1000]) == many[:1000]
    shown = redact_at(("spec", "args"), long)
    assert shown.count(REDACTED) >= 10
    assert "token x" in shown[0]


def test_a_text_is_searched_once_however_often_it_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def noted(text: str) -> str:
        searched.append(text)
        return text

    monkeypatch.setattr("webhook.admission.redaction.scrub", noted)
    groups = [{"fails": ["outside of the zone", "without the label"]} for _ in range(100)]

    assert redact({"nodes": groups}) == {"nodes": groups}
    assert sorted(searched) == ["outside of the zone", "without the label"]


LONG_TEXT = b64encode(b"password: hunter2, and more").decode()


@pytest.mark.parametrize(
    "value",
    [
        *({key: SECRET} for key in ("userData", "networkDataBase64", "caBundle", "extraHeaders", "session", "dhCert")),
        *({key: {"ssh-x": SECRET}} for key in ("annotations", "labels", "options", "volumeAttributes")),
        {"name": "key", "value": SECRET},
        {"httpHeaders": [{"name": "X-Vault", "value": SECRET}]},
        {"kind": "Secret", "data": {"x": SECRET}},
        ["-token", SECRET],
        {"x": LONG_TEXT},
        *({"x": f"{LONG_TEXT[:24]}{space}{LONG_TEXT[24:]}"} for space in (" ", "\n", "\u3000")),
        *({"x": f"basic{mark}{SECRET}{mark}{'a' * 20}"} for mark in ("'", "`", '"')),
        {"hf_aaaaaaaaaaaaaaaaaaaaaa": 1},
        nested(MAX_DEPTH + 1, "leaf"),
        [1] * (redaction.MAX_VALUES + 1),
    ],
)
def test_a_quick_look_passes_over_nothing_that_a_walk_hides(value: Any) -> None:
    assert redact_at(("spec",), value) != value
    assert not redaction.is_harmless(msgspec.json.encode(value).decode())


def test_what_virtual_machines_are_made_of_takes_one_look() -> None:
    disks = [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1}, {"name": "data", "serial": "data-01"}]
    firmware = {"bootloader": {"efi": {"secureBoot": True}}, "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}
    assert redaction.is_harmless(msgspec.json.encode([{"disks": disks}, firmware]).decode())
