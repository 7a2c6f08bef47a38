"""Objects in the files of a directory: found, read as their kinds have them, and every mistake with its place."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook import names
from webhook.errors import InputError, quote
from webhook.k8s.documents import Document, format_path, mistakes_of, objects_in
from webhook.k8s.types.core import NodeWithoutImages, PendingPod
from webhook.k8s.types.meta import Lease, Namespace, Object, unix_time
from webhook.k8s.yaml_documents import read_documents
from webhook.kubevirt.definitions import DEFINITIONS, Definition
from webhook.kubevirt.types import views


class Kind(msgspec.Struct, frozen=True):
    """A kind that files may hold, in versions that match a pattern; its objects are checked against a view.

    Attributes:
        for_doctor: whether only ``doctor`` and the plans of ``explain`` read it: policies and ``expand`` do not.
    """

    group: str
    name: str
    versions: str = r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?"
    namespaced: bool = True
    view: type[Object] = Object
    for_doctor: bool = False


_KUBEVIRT_VERSIONS: Final = "v1|v1alpha3"
_CDI: Final = "cdi.kubevirt.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_FLOW: Final = "flowcontrol.apiserver.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"

KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("", "Namespace", "v1", False, Namespace),
        Kind("", "Node", "v1", False, NodeWithoutImages),
        Kind("", "Pod", "v1", view=PendingPod),
        Kind("", "PersistentVolumeClaim", "v1"),
        Kind("", "PersistentVolume", "v1", False),
        Kind("storage.k8s.io", "StorageClass", "v1", False),
        Kind("policy", "PodDisruptionBudget", "v1"),
        Kind("", "ResourceQuota", "v1"),
        Kind("", "LimitRange", "v1"),
        Kind("resource.k8s.io", "DeviceClass", "v1", False),
        Kind("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "v1"),
        Kind("node.k8s.io", "RuntimeClass", "v1", False),
        Kind("scheduling.k8s.io", "PriorityClass", "v1", False),
        Kind("coordination.k8s.io", "Lease", "v1", view=Lease),
        Kind("metrics.k8s.io", "NodeMetrics", "v1beta1", False),
        Kind("metrics.k8s.io", "PodMetrics", "v1beta1"),
        Kind(DEFINITIONS.group, DEFINITIONS.kind, DEFINITIONS.version, False, Definition),
        Kind("apps", "ControllerRevision", "v1", view=views.ControllerRevision),
        Kind(names.KUBEVIRT_GROUP, "KubeVirt", _KUBEVIRT_VERSIONS, view=views.KubeVirt),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachine", _KUBEVIRT_VERSIONS, view=views.VirtualMachine),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachineInstance", _KUBEVIRT_VERSIONS, view=views.VirtualMachineInstance),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachineInstanceReplicaSet", _KUBEVIRT_VERSIONS),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachineInstanceMigration", _KUBEVIRT_VERSIONS),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachineInstancePreset", _KUBEVIRT_VERSIONS),
        Kind("pool.kubevirt.io", "VirtualMachinePool"),
        Kind(names.INSTANCETYPE_GROUP, "VirtualMachineInstancetype", view=views.Instancetype),
        Kind(names.INSTANCETYPE_GROUP, "VirtualMachinePreference"),
        Kind(names.INSTANCETYPE_GROUP, "VirtualMachineClusterInstancetype", namespaced=False, view=views.Instancetype),
        Kind(names.INSTANCETYPE_GROUP, "VirtualMachineClusterPreference", namespaced=False),
        Kind(_CDI, "DataVolume"),
        Kind(_CDI, "DataSource"),
        Kind("snapshot.storage.k8s.io", "VolumeSnapshot"),
        Kind("migrations.kubevirt.io", "MigrationPolicy", namespaced=False),
        Kind(_ADMISSION, "MutatingWebhookConfiguration", "v1", False, for_doctor=True),
        Kind(_ADMISSION, "ValidatingWebhookConfiguration", "v1", False, for_doctor=True),
        Kind(_ADMISSION, "ValidatingAdmissionPolicy", "v1", False, for_doctor=True),
        Kind(_ADMISSION, "ValidatingAdmissionPolicyBinding", "v1", False, for_doctor=True),
        Kind("plugin.kubevirt.io", "Plugin", "v1alpha1", False, for_doctor=True),
        Kind("lifecycle.k8s.io", "EvictionRequest", "v1alpha1", for_doctor=True),
        Kind("operator.openshift.io", "KubeDescheduler", "v1", for_doctor=True),
        Kind("apps", "Deployment", "v1", for_doctor=True),
        Kind("", "ConfigMap", "v1", for_doctor=True),
        Kind("", "Service", "v1", for_doctor=True),
        Kind("", "Secret", "v1", for_doctor=True),
        Kind(_FLOW, "FlowSchema", "v1", False, for_doctor=True),
        Kind(_FLOW, "PriorityLevelConfiguration", "v1", False, for_doctor=True),
        Kind(_RBAC, "ClusterRole", "v1", False, for_doctor=True),
        Kind(_RBAC, "ClusterRoleBinding", "v1", False, for_doctor=True),
        Kind(_RBAC, "Role", "v1", for_doctor=True),
        Kind(_RBAC, "RoleBinding", "v1", for_doctor=True),
    )
}


_GROUPS: Final = {kind.group for kind in KINDS.values()}
_SUFFIXES: Final = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")


class FileObject(msgspec.Struct, frozen=True):
    """One object, as it was read and as policies see it."""

    value: dict[str, Any]
    view: Object
    where: str


# Kind, namespace ("" for those without) and name: the kinds' names are unique across their groups.
Index = dict[str, dict[tuple[str, str], FileObject]]


def read_objects(root: Path, mistakes: list[InputError]) -> Iterator[Document]:
    """All objects of all files; what cannot be read becomes a mistake."""
    for file in find_files(root, mistakes):
        try:
            for document in read_documents(file):
                try:
                    yield from objects_in(document)
                except InputError as error:
                    mistakes.extend(mistakes_of(error))
        except InputError as error:
            mistakes.extend(mistakes_of(error))


def find_files(root: Path, mistakes: list[InputError]) -> list[Path]:
    """The files of YAML or JSON below a directory, or the file itself; hidden ones and linked directories are skipped.

    Directories that cannot be read become mistakes; it is an `InputError` where there are no such files.
    """
    if not root.is_dir():
        return [root]
    paths: list[Path] = []
    before = len(mistakes)

    def unreadable(error: OSError) -> None:
        mistakes.append(InputError(f"cannot be read: {error.strerror}", str(error.filename)))

    for directory, below, files in os.walk(root, onerror=unreadable):
        below[:] = sorted(name for name in below if not name.startswith("."))
        paths += [Path(directory, name) for name in files if name.endswith(_SUFFIXES) and not name.startswith(".")]
    if not paths and len(mistakes) == before:
        raise InputError("holds no YAML or JSON files", str(root), "write some there with kubectl get -o yaml")
    return sorted(paths)


def add_object(index: Index, document: Document, kind: Kind) -> None:
    """Check one object and enter it; an `InputError` where it cannot be one of a cluster, or is known already."""
    value = document.value
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError(f"this {kind.name} has no metadata", document.where(["metadata"]), "give it a name")
    try:
        view = msgspec.convert(value, kind.view)
    except msgspec.ValidationError as error:
        path, what, fix = describe_wrong_type(value, error)
        raise InputError(what, document.where(path), fix) from error
    name, namespace = view.meta.name, view.meta.namespace or ""
    if not name:
        what = f"this {kind.name} has no metadata.name"
        raise InputError(what, document.where(["metadata"]), "objects of a cluster have one")
    if kind.namespaced != bool(namespace):
        has, fix = ("no", "one") if kind.namespaced else ("a", "none; remove it")
        what = f"{kind.name} {quote(name)} has {has} metadata.namespace"
        raise InputError(what, document.where(["metadata"]), f"objects of its kind are in {fix}")
    if view.meta.creation_timestamp is not None and unix_time(view.meta.creation_timestamp) is None:
        path = ("metadata", "creationTimestamp")
        fix = "use for example 2026-01-31T12:00:00Z"
        raise InputError(f"{format_path(path)} is not a valid time", document.where(path), fix)
    entry = index[kind.name].setdefault((namespace, name), FileObject(value, view, document.where()))
    if entry.value is not value:
        title = f"{kind.name} {quote(name)}"
        place = f"{title} of namespace {namespace}" if namespace else title
        raise InputError(f"{place} is a duplicate of {entry.where}", document.where(), "remove one")


def kind_of(document: Document) -> Kind | None:
    """The kind of an object; None for one that nothing here needs.

    Raises:
        InputError: it has no kind or version, is of a version that its kind does not have, or its kind or group is
            nearly that of a needed one.
    """
    name, version = document.value.get("kind"), document.value.get("apiVersion")
    if not isinstance(name, str) or not name:
        raise InputError("the object has no kind", document.where(["kind"]), "write one such as kind: Node")
    if not isinstance(version, str) or not version:
        raise InputError(f"this {name} has no apiVersion", document.where(["apiVersion"]), "write one")
    kind, group = KINDS.get(name), version.rpartition("/")[0]
    if kind is None:
        of_group = [each.name for each in KINDS.values() if each.group == group]
        if near := difflib.get_close_matches(name, of_group, n=1, cutoff=0.8):
            what = f"{quote(name)} is not a kind that can be read from files"
            raise InputError(what, document.where(["kind"]), f"did you mean {near[0]}?")
        return None
    if not _has_version(kind, version):
        # Other groups have kinds of the same name.
        if group not in _GROUPS and not difflib.get_close_matches(group, [kind.group], n=1, cutoff=0.8):
            return None
        version_hint = kind.versions.partition("|")[0] if kind.versions.startswith("v1") else "VERSION"
        fix = f"write {kind.group}/{version_hint}" if kind.group else f"write {version_hint}"
        raise InputError(f"{quote(version)} has no {name}", document.where(["apiVersion"]), fix)
    return kind


@lru_cache(maxsize=256)
def _has_version(kind: Kind, version: str) -> bool:
    group, _, number = version.rpartition("/")
    return group == kind.group and re.fullmatch(kind.versions, number) is not None


_TYPES: Final = {
    "str": "a string",
    **dict.fromkeys(("int", "float"), "a number"),
    "bool": "a boolean",
    "object": "a mapping",
    "array": "a list",
}
# The types of JSON by msgspec's names; each of the others has Python's own.
_NAMES: Final = {dict: "object", list: "array", type(None): "null"}


def describe_wrong_type(value: Any, error: msgspec.ValidationError) -> tuple[tuple[str | int, ...], str, str]:
    """The path that msgspec complains of, what is wrong there, and what to do."""
    message = re.fullmatch(r"Expected `(\w+)(?: \| null)?`, got `(\w+)`(?: - at `\$(.*)`)?", str(error))
    if message is None:
        return (), f"the object is not as it should be: {error}", ""
    expected, got, place = message.groups()
    steps = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place or "")
    path = _find_path(value, [name or (step if step == "..." else int(step)) for name, step in steps], got) or ()
    fix = "put it in quotes" if expected == "str" and got in ("int", "float", "bool") else ""
    needed = "an integer" if expected == "int" else _TYPES.get(expected, expected)
    what = f"{format_path(path) or 'the object'} must be {needed}, not {_TYPES.get(got, got)}"
    return path, what, fix


def _find_path(value: Any, steps: list[str | int], got: str) -> tuple[str | int, ...] | None:
    """The first path of that form whose value has a type: msgspec names no keys of mappings, only ``...``."""
    if not steps:
        return () if _NAMES.get(type(value), type(value).__name__) == got else None
    step, *rest = steps
    below = ((key, _find_path(value[key], rest, got)) for key in (value if step == "..." else [step]))
    return next(((key, *path) for key, path in below if path is not None), None)
