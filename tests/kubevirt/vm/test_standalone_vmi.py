"""A bare VMI must get what virt-controller would have given the VMI of a VM with the same template."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pytest

from tests.kubevirt import plain
from tests.vectors.cases import FILE, Json, VectorCase, read
from tests.vectors.stages import uuids
from webhook.errors import InputError
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.go_json.structs import decode, encode
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, MATCHERS, Matcher, SpecReference, of_matcher
from webhook.kubevirt.rejection import Cause, Crash, Rejection
from webhook.kubevirt.rules import read_vm
from webhook.kubevirt.vm import standalone_vmi


class Comparison(NamedTuple):
    """A case in which virt-controller builds a VMI: the bare VMI of the same template, and KubeVirt's."""

    case: VectorCase
    vmi: Json
    found: dict[Matcher, tuple[SpecReference, Json]]
    expected: Json


def comparisons() -> Iterator[Comparison]:
    for case in read(FILE):
        vm, expected = case.given.get("vm"), case.expected.get("controller", {})
        if vm is None or "vmi" not in expected or vm.get("status"):
            continue
        try:
            changed = plain.mutate_vm(vm, case.get, uuids(), case.configuration).vm if "mutate" in case.expected else vm
            decoded = read_vm(changed)
            found = {matcher: matcher.find(decoded, case.get) for matcher in MATCHERS}
        except InputError:
            continue
        named = {
            matcher: (of_matcher(matcher, decoded["spec"][matcher.field]), whole)
            for matcher, whole in found.items()
            if whole is not None
        }

        if named and changed and case.configuration.reference_policy == "reference":
            vmi = {**copy.deepcopy(changed["spec"]["template"]), "kind": "VirtualMachineInstance"}
            yield Comparison(case, vmi, named, expected)


ALL = list(comparisons())
U1 = SpecReference("VirtualMachineClusterInstancetype", "u1.small")


def test_the_same_as_virt_controllers() -> None:
    compared = 0
    for one in ALL:
        try:
            filled = standalone_vmi.fill(one.vmi, one.found, one.case.configuration)
        except Cause:
            # KubeVirt's VM webhook denies this VM; the vectors have virt-controller's answer all the same.
            continue
        except Crash:
            assert "panic" in str(one.case.expected)
            continue
        except Rejection as rejection:
            assert one.expected.get("error"), (one.case.id, rejection)
            continue
        spec, wanted = filled.after["spec"], copy.deepcopy(one.expected["vmi"]["spec"])
        # virt-controller derives the firmware's UUID from the VM's name.
        wanted["domain"]["firmware"].pop("uuid", None)
        spec["domain"].get("firmware", {}).pop("uuid", None)
        spec["domain"].setdefault("firmware", {})
        assert spec == wanted, one.case.id
        annotations = one.expected["vmi"]["metadata"]["annotations"]
        annotations.pop("kubevirt.io/vm-generation")
        assert filled.after["metadata"].get("annotations", {}) == annotations, one.case.id
        compared += 1
    assert (len(ALL) > 200, compared > 150) == (True, True)


def test_what_is_given_stays_as_it_is() -> None:
    """What was filled shares with it whatever stays, and with what is remembered of the objects."""
    for one in ALL:
        given = copy.deepcopy((one.vmi, list(one.found.values())))
        answers = []
        for _ in range(2):
            with suppress(Rejection):
                answers.append(standalone_vmi.fill(one.vmi, one.found, one.case.configuration))
        shape = one.case.configuration.rules.vmi

        assert (one.vmi, list(one.found.values())) == given, one.case.id
        assert answers[:1] == answers[1:], one.case.id
        assert not answers or answers[0].before == encode(shape, decode(shape, one.vmi)), one.case.id
        assert not answers or answers[0].after == encode(shape, answers[0].after), one.case.id
        # What was computed is written: msgspec would not encode it, even where it is canonical.
        assert all(msgspec.json.encode(answer.after) for answer in answers), one.case.id


def test_an_empty_node_selector_is_none() -> None:
    """KubeVirt's webhook drops it from a VM, before it could conflict with the instancetype's."""
    whole = {"spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "nodeSelector": {"a": "b"}}}
    filled = standalone_vmi.fill(
        {"spec": {"domain": {}, "nodeSelector": {}}}, {INSTANCETYPE_MATCHER: (U1, whole)}, DEFAULTS
    )
    assert filled.after["spec"]["nodeSelector"] == {"a": "b"}
    # Malformed objects are a sentence.
    with pytest.raises(InputError, match=r"spec.domain.cpu"):
        standalone_vmi.fill({"spec": {"domain": {"cpu": 1}}}, {}, DEFAULTS)


def test_an_overcommitted_amount_is_written_as_virt_controller_writes_it() -> None:
    """It applies the captured object: 1.3Ti is not a whole number of bytes, and so a decimal by then."""
    whole = {"spec": {"cpu": {"guest": 1}, "memory": {"guest": "1.3Ti", "overcommitPercent": 33}}}
    filled = standalone_vmi.fill({"spec": {"domain": {}}}, {INSTANCETYPE_MATCHER: (U1, whole)}, DEFAULTS)
    assert filled.after["spec"]["domain"]["memory"] == {"guest": "1429365116108800m"}
    assert filled.after["spec"]["domain"]["resources"]["requests"] == {"memory": "957674553344"}
