"""Valid objects of KubeVirt's kinds, and random changes of them: typos, wrong types, wrong indents."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

VM: Json = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "fedora", "labels": {"app": "shop"}, "annotations": {"example.com/a": "b"}},
    "spec": {
        "runStrategy": "Always",
        "dataVolumeTemplates": [
            {"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}, "storage": {"resources": {}}}}
        ],
        "template": {
            "metadata": {"labels": {"app": "shop"}},
            "spec": {
                "domain": {
                    "cpu": {"cores": 2, "numa": {"guestMappingPassthrough": {}}},
                    "memory": {"guest": "2Gi", "hugepages": {"pageSize": "2Mi"}},
                    "devices": {
                        "disks": [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1}],
                        "interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 80}]}],
                        "rng": {},
                    },
                    "resources": {"requests": {"memory": 1024, "cpu": "500m"}},
                },
                "evictionStrategy": "LiveMigrate",
                "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}],
                "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
            },
        },
    },
}
_SELECTOR: Json = {"matchLabels": {"app": "shop"}}


def _of(kind: str, spec: Json, version: str = "kubevirt.io/v1") -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "fedora"}, "spec": spec}


OBJECTS: Mapping[str, Json] = {
    each["kind"]: each
    for each in (
        VM,
        _of("VirtualMachineInstance", VM["spec"]["template"]["spec"]),
        _of(
            "VirtualMachineInstanceReplicaSet",
            {"replicas": 2, "selector": _SELECTOR, "template": VM["spec"]["template"]},
        ),
        _of("VirtualMachineInstanceMigration", {"vmiName": "fedora", "addedNodeSelector": {"zone": "a"}}),
        _of(
            "VirtualMachinePool",
            {
                "replicas": 2,
                "selector": _SELECTOR,
                "virtualMachineTemplate": {"metadata": {"labels": {"app": "shop"}}, "spec": VM["spec"]},
            },
            "pool.kubevirt.io/v1beta1",
        ),
        _of(
            "VirtualMachineClusterInstancetype",
            {"cpu": {"guest": 2}, "memory": {"guest": "4Gi"}},
            "instancetype.kubevirt.io/v1beta1",
        ),
        _of(
            "MigrationPolicy",
            {"allowPostCopy": True, "selectors": {"namespaceSelector": {"hpc": "true"}}},
            "migrations.kubevirt.io/v1alpha1",
        ),
    )
}
_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 7, 2**40, "", "x", "2Gi", "2Gb", "500m", "Always", "a b", "80", [], ["x"], [{}], {}, {"x": 1}]
)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all parts that can be changed."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        # Another version or kind is another URL.
        if path or key in ("spec", "metadata"):
            yield (*path, key)
            yield from _places(item, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, obj: Json) -> Json:
    """The valid object with up to two changes."""
    result, places = copy.deepcopy(obj), list(_places(obj))
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from(places))
        holder: Any = result
        above: Any = None
        try:
            for step in path[:-1]:
                above, holder = holder, holder[step]
            item = holder[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # the change before has removed it
        match draw(st.sampled_from(["value", "delete", "rename", "add", "double", "indent", "case"])):
            case "value":
                holder[path[-1]] = draw(_VALUES)
            case "delete":
                del holder[path[-1]]
            case "rename" if isinstance(holder, dict):
                holder[f"{path[-1]}x"] = holder.pop(path[-1])
            case "case" if isinstance(holder, dict):
                holder[str(path[-1]).lower()] = holder.pop(path[-1])
            case "add" if isinstance(item, dict):
                item[draw(st.sampled_from(["name", "unknown", "key", "cores", "metadata"]))] = draw(_VALUES)
            case "double" if isinstance(item, list) and item:
                item.append(copy.deepcopy(item[0]))
            case "indent" if isinstance(holder, dict) and isinstance(above, dict) and len(path) > 2:
                above[path[-1]] = holder.pop(path[-1])
    return result


files: st.SearchStrategy[list[Json]] = st.lists(
    st.sampled_from(sorted(OBJECTS)), min_size=1, max_size=3, unique=True
).flatmap(lambda kinds: st.tuples(*(mutated(OBJECTS[kind]) for kind in kinds)).map(list))
