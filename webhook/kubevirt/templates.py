"""The VMs that VirtualMachineTemplates make (virt-template): their parameters, and where these are put."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook import names
from webhook.errors import InputError, quote
from webhook.k8s.mappings import mapping
from webhook.kubevirt.go_json.structs import Json, copy_json

GROUP: Final = "template.kubevirt.io"
KIND: Final = "VirtualMachineTemplate"
# What parameters may add to a VM. The API server takes no larger object.
MAX_ADDED_CHARACTERS: Final = 3 * 1024 * 1024
_MAX_GENERATED: Final = 255
_REFERENCE: Final = re.compile(r"\$\{([a-zA-Z0-9_]+)\}")
_WHOLE: Final = re.compile(r"\$\{\{([a-zA-Z0-9_]+)\}\}")
_CLASS: Final = re.compile(r"\[([a-zA-Z0-9\-\\]+)\]\{([0-9]{1,3})\}")
_CLASSES: Final = {"\\w": "a", "\\d": "0", "\\a": "a", "\\A": "!"}


class MissingParametersError(InputError):
    """A template that makes no VM before required parameters have values."""


def vm_of_template(template: Json, values: Mapping[str, str]) -> Json:
    """The VM that a VirtualMachineTemplate makes, which is not changed.

    The values, by the parameters' names, replace those of the template; names that it does not declare are ignored.

    Raises:
        InputError: there is no VM in the template, a parameter is not valid, or one is used that is not declared.
        MissingParametersError: a required parameter has no value.
    """
    vm = copy_json(mapping(template, "spec", "virtualMachine", required=True))
    metadata = mapping(vm, "metadata", where="spec.virtualMachine")
    namespace = metadata.get("namespace")
    if not (isinstance(namespace, str) and _REFERENCE.search(namespace)):
        metadata.pop("namespace", None)
    parameters = _values(mapping(template, "spec"), values)
    made: Json = _Substitution(parameters).of(vm)
    made |= {"apiVersion": f"{names.KUBEVIRT_GROUP}/v1", "kind": "VirtualMachine"}
    metadata = made["metadata"] = dict(mapping(made, "metadata", where="spec.virtualMachine"))
    own = mapping(template, "metadata").get("namespace")
    if not metadata.get("namespace") and own:
        metadata["namespace"] = own
    return made


def _values(spec: Json, values: Mapping[str, str]) -> dict[str, str]:
    declared = spec.get("parameters")
    if not isinstance(declared, list | None):
        raise InputError("must be a list", "spec.parameters", "see the API reference")
    result: dict[str, str] = {}
    missing = []
    for index, parameter in enumerate(declared or ()):
        where = f"spec.parameters[{index}]"
        name = parameter.get("name") if isinstance(parameter, dict) else None
        if not isinstance(name, str) or not name:
            raise InputError("the parameter has no name", where, "set its name")
        if name in result:
            raise InputError(f"the parameter {quote(name)} is a duplicate", where, "remove one")
        value = values.get(name) or parameter.get("value") or _generate_value(parameter, where)
        if not isinstance(value, str):
            raise InputError(f"the value of {quote(name)} must be a string", f"{where}.value", "put it in quotes")
        if not value and parameter.get("required"):
            missing.append(name)
        result[name] = value
    if missing:
        what = f"the required parameters have no value: {', '.join(missing)}"
        raise MissingParametersError(what, "spec.parameters", f"use --param {missing[0]}=VALUE")
    return result


def _generate_value(parameter: Json, where: str) -> str:
    generator, pattern = parameter.get("generate"), parameter.get("from")
    if not generator:
        return ""
    if generator != "expression" or not isinstance(pattern, str):
        raise InputError("only the generator expression is supported, with from", where, "correct the parameter")

    def characters(match: re.Match[str]) -> str:
        count = int(match[2])
        if not 0 < count <= _MAX_GENERATED:
            raise InputError(f"from must generate 1 to {_MAX_GENERATED} characters", where, "correct the parameter")
        first = match[1][:2] if match[1][0] == "\\" else match[1][0]
        return _CLASSES.get(first, first[-1]) * count

    return _CLASS.sub(characters, pattern)


class _Substitution:
    """Replaces references to parameters in the strings of a value.

    Args:
        values: the parameters' values by name.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values: Final = values
        self._added = 0

    def of(self, value: Any) -> Any:
        """A value with all its references replaced, those in the keys of mappings too."""
        if isinstance(value, dict):
            return {(self._text(key) if "${" in key else key): self.of(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if not isinstance(value, str) or "${" not in value:
            return value
        if whole := _WHOLE.fullmatch(value):
            text = self._value(whole[1])
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError:
                return text
        return self._text(value)

    def _text(self, text: str) -> str:
        return _REFERENCE.sub(lambda match: self._value(match[1]), text)

    def _value(self, name: str) -> str:
        if name not in self._values:
            what = f"the VM refers to the parameter {quote(name)}, which the template does not declare"
            raise InputError(what, "spec.virtualMachine", "declare it in spec.parameters")
        value = self._values[name]
        self._added += len(value)
        if self._added > MAX_ADDED_CHARACTERS:
            what = f"the parameters add more than {MAX_ADDED_CHARACTERS >> 20} Mi characters to the VM"
            raise InputError(what, "spec.virtualMachine", "use shorter values")
        return value
