"""What virt-controller makes of the template in a pool or a replica set."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

from webhook import names
from webhook.errors import InputError, quote
from webhook.k8s.mappings import mapping
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
