"""The VMs that VirtualMachineTemplates make."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from webhook.errors import InputError
from webhook.kubevirt import templates
from webhook.kubevirt.templates import MissingParametersError, vm_of_template


def template(machine: Any, *parameters: dict[str, Any], namespace: str = "images") -> dict[str, Any]:
    return {
        "apiVersion": "template.kubevirt.io/v1alpha1",
        "kind": "VirtualMachineTemplate",
        "metadata": {"name": "fedora", "namespace": namespace},
        "spec": {"virtualMachine": machine, "parameters": list(parameters)},
    }


def made(machine: dict[str, Any], *parameters: dict[str, Any], **values: str) -> Any:
    return vm_of_template(template({"spec": machine}, *parameters), values)["spec"]


def test_parameters_take_the_place_of_their_references_and_the_template_is_not_changed() -> None:
    machine = {"name": "${A}-${B}", "whole": "${{B}}", "text": "x${{B}}", "keys": {"${A}": ["${A}", 1, None]}}
    parameters = {"name": "A", "value": "one"}, {"name": "B", "value": "2"}
    replaced = {"name": "one-2", "whole": 2, "text": "x${{B}}", "keys": {"one": ["one", 1, None]}}
    assert (made(machine, *parameters), made(machine, *parameters, A="two")["name"]) == (replaced, "two-2")
    given = template({"metadata": {"namespace": "x"}, "spec": {"a": ["${A}"]}}, {"name": "A", "value": "1"})
    before = copy.deepcopy(given)
    vm_of_template(given, {"A": "2"})
    assert given == before


@pytest.mark.parametrize(
    ("value", "typed"), [("true", True), ("4", 4), ('{"a": 1}', {"a": 1}), ("4Gi", "4Gi"), ("NaN", "NaN")]
)
def test_a_whole_reference_is_a_value_of_its_type(value: str, typed: Any) -> None:
    assert made({"a": "${{P}}"}, {"name": "P", "value": value}) == {"a": typed}


def test_what_a_template_does_not_say_is_forced() -> None:
    machine = {"metadata": {"name": "a", "namespace": "hardcoded"}, "spec": {}}
    result = vm_of_template(template(machine), {})
    own = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a", "namespace": "images"}}
    assert result == own | {"spec": {}}
    machine["metadata"]["namespace"] = "${WHERE}"
    parameters = template(machine, {"name": "WHERE", "value": "apps"})
    assert vm_of_template(parameters, {})["metadata"]["namespace"] == "apps"


@pytest.mark.parametrize(
    ("pattern", "value"), [("[a-z]{3}", "aaa"), ("web-[\\d]{2}x", "web-00x"), ("[\\w]{1}", "a"), ("plain", "plain")]
)
def test_generated_values_are_the_same_each_time(pattern: str, value: str) -> None:
    assert made({"a": "${P}"}, {"name": "P", "generate": "expression", "from": pattern}) == {"a": value}


def test_required_parameters_need_a_value() -> None:
    given = template({"spec": {}}, {"name": "NAME", "required": True}, {"name": "SIZE", "required": True})
    with pytest.raises(MissingParametersError) as caught:
        vm_of_template(given, {})
    assert "NAME, SIZE" in caught.value.what
    assert caught.value.fix == "use --param NAME=VALUE"
    vm_of_template(given, {"NAME": "a", "SIZE": "b", "OTHER": "c"})


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (template(None), "spec.virtualMachine"),
        (template([]), "spec.virtualMachine"),
        (template({"metadata": 1}), "spec.virtualMachine.metadata"),
        (template({"a": "${B}"}), "spec.virtualMachine"),
        (template({}, {"name": ""}), "spec.parameters[0]"),
        (template({}, {"name": "A"}, {"name": "A"}), "spec.parameters[1]"),
        (template({}, {"name": "A", "value": 1}), "spec.parameters[0].value"),
        (template({}, {"name": "A", "generate": "dice", "from": "x"}), "spec.parameters[0]"),
        (template({}, {"name": "A", "generate": "expression"}), "spec.parameters[0]"),
        (template({}, {"name": "A", "generate": "expression", "from": "[a]{999}"}), "spec.parameters[0]"),
        ({**template({}), "spec": {"virtualMachine": {}, "parameters": {}}}, "spec.parameters"),
    ],
)
def test_templates_that_make_no_vm(given: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        vm_of_template(given, {})
    assert caught.value.where == where
    assert not isinstance(caught.value, MissingParametersError)


@pytest.mark.control("templates-that-multiply")
def test_what_parameters_add_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MAX_ADDED_CHARACTERS", 1000)
    assert len(made({"a": "${A}" * 10}, {"name": "A", "value": "x" * 100})["a"]) == 1000
    with pytest.raises(InputError) as caught:
        made({"a": ["${A}"] * 11}, {"name": "A", "value": "x" * 100})
    assert caught.value.where == "spec.virtualMachine"
