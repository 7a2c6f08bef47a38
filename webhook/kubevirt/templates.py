"""VMs that other objects make: the pools of KubeVirt and the templates of virt-template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from webhook import names
from webhook.errors import InputError, quote
from webhook.kubevirt.go_json.structs import Json, copy_json

POOL_GROUP: Final = "pool.kubevirt.io"
POOL: Final = "VirtualMachinePool"
REPLICA_SET: Final = "VirtualMachineInstanceReplicaSet"
_REVISION_LABEL: Final = "kubevirt.io/vm-pool-revision-name"
_FINALIZER: Final = "pool.kubevirt.io/finalizer"
# The namespace of stand-ins for the UIDs of owners that no cluster has created yet.
_UIDS: Final = UUID("0b3c5c4e-6f52-5f0e-9a55-7a1f5b0c9d21")
# Where the sources of a volume name an object that `nameGeneration` numbers: the source, its reference and the flag.
_SECRETS: Final = "appendIndexToSecretRefs"
_CONFIG_MAPS: Final = "appendIndexToConfigMapRefs"
_CLOUD_INIT: Final = ("secretRef", "networkDataSecretRef")


def vm_of_pool(pool: Json, index: int = 0) -> Json:
    """The VM of an index that virt-controller creates for a VirtualMachinePool; the others differ in names alone.

    Raises:
        InputError: the pool has no name, or no template with a spec.
    """
    metadata = mapping(pool, "metadata")
    name = _base_name(pool)
    template = copy_json(mapping(pool, "spec", "virtualMachineTemplate", required=True))
    spec = mapping(template, "spec", required=True, where="spec.virtualMachineTemplate")
    generation = metadata.get("generation")
    revision = f"{name}-{generation if isinstance(generation, int) else 1}"
    made: Json = {"name": f"{name}-{index}", **_namespace_field(metadata)}
    own = mapping(template, "metadata", where="spec.virtualMachineTemplate")
    made["labels"] = {**mapping(own, "labels"), _REVISION_LABEL: revision}
    if annotations := mapping(own, "annotations"):
        made["annotations"] = annotations
    made["finalizers"] = [_FINALIZER]
    made["ownerReferences"] = [_owner(pool, name)]
    inner = mapping(spec, "template", where="spec.virtualMachineTemplate.spec")
    if inner:
        _number_volumes(spec, mapping(pool, "spec", "nameGeneration"), f"-{index}")
        labels = mapping(mapping(inner, "metadata"), "labels")
        inner["metadata"] = {**mapping(inner, "metadata"), "labels": {**labels, _REVISION_LABEL: revision}}
    return {"apiVersion": f"{names.KUBEVIRT_GROUP}/v1", "kind": "VirtualMachine", "metadata": made, "spec": spec}


def vmi_of_replica_set(replica_set: Json) -> Json:
    """The VMI that virt-controller creates for a VirtualMachineInstanceReplicaSet, which is not changed.

    Raises:
        InputError: the replica set has no name, or no template with a spec.
    """
    template = copy_json(mapping(replica_set, "spec", "template", required=True))
    spec = mapping(template, "spec", required=True, where="spec.template")
    name = _base_name(replica_set)
    made = dict(mapping(template, "metadata", where="spec.template"))
    base = made.pop("name", None) or made.get("generateName") or name
    made |= {"generateName": base, **_namespace_field(mapping(replica_set, "metadata"))}
    made["ownerReferences"] = [_owner(replica_set, name)]
    kind = "VirtualMachineInstance"
    return {"apiVersion": f"{names.KUBEVIRT_GROUP}/v1", "kind": kind, "metadata": made, "spec": spec}


def mapping(value: Json, *path: str, required: bool = False, where: str = "") -> Json:
    """The mapping at a path below a mapping, whose own path ``where`` is; empty where there is none.

    Raises:
        InputError: something on the path is not a mapping, or the last part is required and missing.
    """
    child: Any = value
    for depth, key in enumerate(path):
        child = child.get(key)
        if child is None and not (required and depth + 1 == len(path)):
            child = {}
        if not isinstance(child, dict):
            place = ".".join(filter(None, (where, *path[: depth + 1])))
            raise InputError("is missing" if child is None else "must be a mapping", place, "see the API reference")
    result: Json = child
    return result


def _base_name(obj: Json) -> str:
    metadata = mapping(obj, "metadata")
    name = metadata.get("name") or metadata.get("generateName")
    if not isinstance(name, str) or not name:
        raise InputError(f"metadata.name of the {obj['kind']} is missing", "metadata.name", "set metadata.name")
    return name


def _namespace_field(metadata: Json) -> Json:
    namespace = metadata.get("namespace")
    return {"namespace": namespace} if namespace else {}


def _owner(owner: Json, name: str) -> Json:
    metadata = mapping(owner, "metadata")
    stand_in = str(uuid5(_UIDS, f"{owner['kind']}/{metadata.get('namespace')}/{quote(name)}"))
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name,
        "uid": metadata.get("uid") or stand_in,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _items(value: Json, key: str) -> list[Json]:
    items = value.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _number_volumes(spec: Json, generation: Json, suffix: str) -> None:
    """Number the DataVolumes of a VM, and what its volumes refer to."""
    renamed = {}
    for data_volume in _items(spec, "dataVolumeTemplates"):
        metadata = mapping(data_volume, "metadata")
        old = metadata.get("name")
        if isinstance(old, str):
            metadata["name"] = renamed[old] = old + suffix
    for volume in _items(mapping(spec, "template", "spec"), "volumes"):
        claim, data_volume = mapping(volume, "persistentVolumeClaim"), mapping(volume, "dataVolume")
        for source, key in ((claim, "claimName"), (data_volume, "name")):
            if isinstance(source.get(key), str):
                source[key] = renamed.get(source[key], source[key])
        if generation.get(_CONFIG_MAPS) is True:
            _number(suffix, (volume, "configMap", "name"), (mapping(volume, "sysprep"), "configMap", "name"))
        if generation.get(_SECRETS) is True:
            _number(suffix, (volume, "secret", "secretName"), (mapping(volume, "sysprep"), "secret", "name"))
            for cloud_init in ("cloudInitNoCloud", "cloudInitConfigDrive"):
                source = mapping(volume, cloud_init)
                _number(suffix, *((source, reference, "name") for reference in _CLOUD_INIT))


def _number(suffix: str, *places: tuple[Json, str, str]) -> None:
    for holder, source, key in places:
        reference = mapping(holder, source)
        if isinstance(reference.get(key), str):
            reference[key] += suffix


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
