from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tests.kubevirt.samples import instancetype, preference, vm
from tests.lookups import among
from webhook.admission.redaction import redact
from webhook.cli.expand_explain import Explanation, _text
from webhook.kubevirt.go_json.origins import Origin, leaves
from webhook.kubevirt.vm import creation

BOTH = vm(
    {"volumes": [{"name": "a", "cloudInitNoCloud": {"userData": "x"}}], "nodeSelector": {"a": "1", "b": "2"}},
    instancetype={"name": "u1"},
    preference={"name": "linux"},
)


def explanation(machine: Any = BOTH, *, stand_ins: Any = ()) -> Explanation:
    get = among([instancetype(), preference(devices={"preferredDiskBus": "virtio"})])
    created = creation.from_vm(machine, get, lambda: "some-uuid")
    return Explanation(created, redact(created.obj), "vm.yaml:1", "KubeVirt's built-in ones", stand_ins)


def printed(told: Explanation) -> list[str]:
    out = StringIO()
    told.print(Console(file=out, width=1000))
    return out.getvalue().splitlines()


def test_groups_stand_in_the_order_of_their_news() -> None:
    heads = [line for line in printed(explanation()) if line and not line.startswith(" ")]

    assert [head.partition("  ")[0] for head in heads] == [
        "VirtualMachineInstance demo/vm",
        "instancetype u1",
        "preference linux",
        "cluster settings",
        "KubeVirt default",
        "vm",
    ]


def test_what_the_vm_says_is_short_and_bookkeeping_too() -> None:
    rows = [line.split("←")[0].split(" = ") for line in printed(explanation()) if "←" in line]
    short = {path.strip(): value.strip() for path, value in rows}

    assert short["spec.volumes"] == "… 2 fields"
    assert short["spec.nodeSelector"] == "… 2 fields"
    assert short["status"].endswith(" fields")
    assert short["spec.domain.cpu.sockets"] == "2"
    assert "metadata.name" not in short


def test_every_line_names_its_origin_and_values_stand_in_line() -> None:
    lines = [line for line in printed(explanation()) if " = " in line]
    group = [line for line in lines if line.endswith("← instancetype u1")]

    assert all("  ← " in line for line in lines)
    assert len({line.index(" = ") for line in group}) == 1
    assert len({line.index("←") for line in group}) == 1


def test_every_leaf_is_a_field() -> None:
    told = explanation()

    assert [field.path for field in told.fields()] == [path for path, _ in leaves(told.shown)]
    assert told.label(Origin.INSTANCETYPE) == "instancetype u1"


def test_stand_ins_are_told() -> None:
    new = {**BOTH, "metadata": {"name": "vm", "namespace": "demo"}}
    told = explanation(new, stand_ins={"some-uuid"})
    marked = [field["path"] for field in told.as_json()["fields"] if field.get("random")]

    assert marked == ["spec.domain.firmware.uuid", "spec.domain.firmware.serial"]
    assert any("some-uuid (random in KubeVirt; " in line for line in printed(told))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("virtio", "virtio"),
        ("4Gi", "4Gi"),
        ("host-model", "host-model"),
        ("registry.example/a/b:13", "registry.example/a/b:13"),
        ("4", '"4"'),
        ("1e3", '"1e3"'),
        ("true", '"true"'),
        ("null", '"null"'),
        ("", '""'),
        (" a", '" a"'),
        ("a ", '"a "'),
        ('a"b', '"a\\"b"'),
        ("a\nb", '"a\\nb"'),
        (True, "true"),
        (4, "4"),
        ({}, "{}"),
        ("x" * 100, "x" * 72 + "…"),
    ],
)
def test_values_as_people_write_them(value: Any, text: str) -> None:
    assert _text(value) == text
