from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webhook.errors import InputError
from webhook.k8s.quantity import Computed
from webhook.kubevirt.go_json.scalars import MAX_KEYS
from webhook.kubevirt.go_json.structs import copy_json, copy_written, decode, encode
from webhook.kubevirt.types.core import VM, VMI_SPEC

BARE: dict[str, Any] = {"domain": {"devices": {}, "resources": {}}}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({}, {}),
        ({"unknown": 1}, {}),
        ({"schedulerName": "", "nodeSelector": {}, "volumes": []}, {}),
        ({"schedulerName": None, "affinity": None}, {}),
        ({"terminationGracePeriodSeconds": 0}, {"terminationGracePeriodSeconds": 0}),
        ({"evictionStrategy": ""}, {"evictionStrategy": ""}),
        ({"affinity": {}}, {"affinity": {}}),
        ({"nodeSelector": {"a": None}}, {"nodeSelector": {"a": ""}}),
        ({"volumes": [{"emptyDisk": {}}]}, {"volumes": [{"name": "", "emptyDisk": {"capacity": "0"}}]}),
        ({"volumes": [None]}, {"volumes": [{"name": ""}]}),
        (
            {"livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 0}},
            {"livenessProbe": {"httpGet": {"port": "http"}}},
        ),
        ({"livenessProbe": {"tcpSocket": {}}}, {"livenessProbe": {"tcpSocket": {"port": 0}}}),
    ],
)
def test_what_go_writes(given: dict[str, Any], written: dict[str, Any]) -> None:
    assert encode(VMI_SPEC, given) == {**BARE, **written}


def test_what_is_not_optional_is_null() -> None:
    def written(term: dict[str, Any]) -> Any:
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
        return encode(VMI_SPEC, {"affinity": affinity})["affinity"]["nodeAffinity"].popitem()[1]

    assert written({}) == {"nodeSelectorTerms": None}
    assert written({"nodeSelectorTerms": None}) == {"nodeSelectorTerms": None}
    assert written({"nodeSelectorTerms": []}) == {"nodeSelectorTerms": []}
    assert written({"nodeSelectorTerms": [{}]}) == {"nodeSelectorTerms": [{}]}


def test_a_null_quantity_in_a_map_is_zero() -> None:
    """Quantity.UnmarshalJSON reads it so; the key is there and conflicts."""
    read = decode(VMI_SPEC, {"domain": {"resources": {"requests": {"cpu": None}}}})

    assert read["domain"]["resources"] == {"requests": {"cpu": "0"}}


def test_structs_that_are_no_pointers_appear() -> None:
    domain = {"features": {}, "machine": {}, "memory": {"guest": 1024}}

    assert encode(VMI_SPEC, {"domain": domain})["domain"] == {
        **BARE["domain"],
        "features": {"acpi": {}},
        "machine": {"type": ""},
        "memory": {"guest": "1024"},
    }


def test_read_a_quantity_stays_as_it_was_written() -> None:
    """Its value can depend on it."""
    memory = {"guest": " 1024Mi ", "maxGuest": 2.5}

    assert decode(VMI_SPEC, {"domain": {"memory": memory}})["domain"]["memory"] == {
        "guest": "1024Mi",
        "maxGuest": "2.5",
    }


def test_read_an_empty_map_differs_from_none() -> None:
    assert decode(VMI_SPEC, {"nodeSelector": {}}) == {**BARE, "nodeSelector": {}}


def test_a_status_keeps_what_we_do_not_know() -> None:
    status = {"printableStatus": "Running", "ready": True, "created": False, "conditions": [], "x": {"y": None}}

    assert encode(VM, {"status": status})["status"] == {"printableStatus": "Running", "ready": True}


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ([], "spec"),
        ({"domain": "x"}, "spec.domain"),
        ({"schedulerName": 1}, "spec.schedulerName"),
        ({"volumes": {}}, "spec.volumes"),
        ({"volumes": [{"name": True}]}, "spec.volumes[0].name"),
        ({"domain": {"cpu": {"cores": -1}}}, "spec.domain.cpu.cores"),
        ({"domain": {"cpu": {"cores": 1.5}}}, "spec.domain.cpu.cores"),
        ({"domain": {"cpu": {"cores": "2"}}}, "spec.domain.cpu.cores"),
        ({"domain": {"cpu": {"dedicatedCpuPlacement": 1}}}, "spec.domain.cpu.dedicatedCpuPlacement"),
        ({"domain": {"memory": {"guest": "much"}}}, "spec.domain.memory.guest"),
        ({"nodeSelector": {"a": []}}, "spec.nodeSelector['a']"),
        ({"nodeSelector": {1: "a"}}, "spec.nodeSelector"),
        ({"nodeSelector": 5}, "spec.nodeSelector"),
        ({"nodeSelector": dict.fromkeys(map(str, range(MAX_KEYS + 1)), "")}, "spec.nodeSelector"),
        ({"domain": {"devices": {"disks": [{}] * 10_000}}}, "spec.domain.devices.disks"),
        ({"tolerations": [None, 1]}, "spec.tolerations[1]"),
        ({"dnsConfig": {"searches": [None]}}, "spec.dnsConfig.searches[0]"),
    ],
    ids=range(17),
)
def test_malformed(given: Any, where: str, golden: Callable[[str], None]) -> None:
    with pytest.raises(InputError) as refused:
        decode(VMI_SPEC, given, "spec")
    assert refused.value.where == where
    golden(refused.value.what)


def test_deep_nesting() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]

    with pytest.raises(InputError, match="status: is nested more than 50 levels deep"):
        decode(VM, {"status": {"x": deep}})
    assert decode(VM, {"spec": {"unknown": deep}})["spec"] == {}
    with pytest.raises(InputError, match="status: has 5001 items"):
        decode(VM, {"status": {"x": [0] * (MAX_KEYS + 1)}})


@pytest.mark.parametrize("make", [copy_json, copy_written])
@pytest.mark.parametrize("text", ["c", Computed("c")])
def test_copies_share_nothing(make: Callable[[Any], Any], text: str) -> None:
    given = {"a": [{"b": 1, "c": text}]}
    copy = make(given)
    copy["a"][0]["b"] = 2

    assert given == {"a": [{"b": 1, "c": text}]}
    assert copy["a"][0]["c"] is text
