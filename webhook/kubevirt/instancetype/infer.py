"""Inferring a matcher from the labels of a volume's source (KubeVirt, pkg/instancetype/infer).

The chains cross namespaces, and their messages reveal what exists there; the server must not follow them with
permissions that the user does not have.
"""

from __future__ import annotations

from typing import Any, Final

from webhook.kubevirt.go_json.structs import STRING, STRING_ALWAYS, STRING_POINTER, Json, Struct, Value, decode
from webhook.kubevirt.instancetype.find import MATCHERS, Matcher
from webhook.kubevirt.rejection import Get, Rejection, get_required
from webhook.kubevirt.releases.capabilities import INFERS_FROM_SNAPSHOTS
from webhook.kubevirt.rules import NEWEST, Rules
from webhook.kubevirt.types.core import METADATA

_NAMED: Final = Struct(name=STRING, namespace=STRING)
_SOURCE: Final = Struct(pvc=_NAMED, snapshot=_NAMED, dataSource=_NAMED)
_DATA_VOLUME_SPEC: Final = Struct(
    source=_SOURCE, sourceRef=Struct(kind=STRING_ALWAYS, name=STRING_ALWAYS, namespace=STRING_POINTER)
)
_LABELED: Final = Struct(metadata=Value(METADATA))
_DATA_VOLUME: Final = Struct(metadata=Value(METADATA), spec=Value(_DATA_VOLUME_SPEC))
DATA_SOURCE: Final = Struct(metadata=Value(METADATA), spec=Value(Struct(source=Value(_SOURCE))))

# The sources whose labels count: what they are called in a source, in messages, and their kinds.
_CLAIM: Final = ("pvc", "DataVolumeSourcePVC", "PersistentVolumeClaim")
_SNAPSHOT: Final = ("snapshot", "DataVolumeSourceSnapshot", "VolumeSnapshot")


class Ignorable(Rejection):
    """A failure that the matcher's failure policy ``Ignore`` forgives."""


def infer(vm: Json, get: Get, rules: Rules = NEWEST) -> None:
    """Replace the matchers of a decoded VM that are to be inferred from volumes.

    After success the matcher names an object and nothing else; after a forgiven failure it is gone. An instancetype
    that was found with policy ``Ignore`` takes the guest's memory with it.

    Raises:
        Rejection: a volume, an object or a label is missing. Missing objects are never forgiven.
        InputError: an object is malformed.
    """
    for matcher in MATCHERS:
        vm_matcher = vm["spec"].get(matcher.field, {})
        if "inferFromVolume" not in vm_matcher:
            continue
        ignore = vm_matcher.get("inferFromVolumeFailurePolicy") == "Ignore"
        try:
            vm["spec"][matcher.field] = _Chain(vm, matcher, get, rules).from_volume(vm_matcher["inferFromVolume"])
        except Ignorable:
            if not ignore:
                raise
            del vm["spec"][matcher.field]
            continue
        if ignore and matcher.field == "instancetype":
            vm["spec"]["template"]["spec"]["domain"].pop("memory", None)


class _Chain:
    """The way from a volume of a decoded VM to the labels for one of its matchers."""

    def __init__(self, vm: Json, matcher: Matcher, get: Get, rules: Rules) -> None:
        self._spec: Final = vm["spec"]
        self._namespace: Final[str] = vm["metadata"].get("namespace", "")
        self._label: Final = f"instancetype.kubevirt.io/default-{matcher.field}"
        self._get = get
        self._sources: Final = (_CLAIM, _SNAPSHOT) if rules.has(INFERS_FROM_SNAPSHOTS) else (_CLAIM,)

    def from_volume(self, name: str) -> Json:
        volumes = self._spec["template"]["spec"].get("volumes", [])
        volume = next((volume for volume in volumes if volume["name"] == name), None)
        if volume is None:
            raise Rejection(f"unable to find volume {name} to infer defaults")
        if "persistentVolumeClaim" in volume:
            return self._from("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"], self._namespace)
        if "dataVolume" in volume:
            return self._from_data_volume(volume["dataVolume"]["name"])
        raise Ignorable(f"unable to infer defaults from volume {name} as type is not supported")

    def _from(self, kind: str, name: str, namespace: str) -> Json:
        return self._from_labels(decode(_LABELED, get_required(self._get, kind, namespace, name), f"{kind} {name}"))

    def _from_labels(self, labeled: Json) -> Json:
        labels = labeled["metadata"].get("labels", {})
        # An empty name is a name: KubeVirt stores the empty matcher and denies the VM's next update.
        if self._label not in labels:
            raise Ignorable(f"unable to find required {self._label} label on the volume")
        vm_matcher = {"name": labels[self._label], "kind": labels.get(f"{self._label}-kind", "")}
        return {key: value for key, value in vm_matcher.items() if value}

    def _from_data_volume(self, name: str) -> Json:
        for template in self._spec.get("dataVolumeTemplates", ()):
            # The labels of a template are not looked at.
            if template["metadata"].get("name", "") == name:
                return self._from_spec(template["spec"])
        stored = self._get("DataVolume", self._namespace, name)
        if stored is None:
            # Collected once it was filled; its claim has the same name.
            return self._from("PersistentVolumeClaim", name, self._namespace)
        volume = decode(_DATA_VOLUME, stored, f"DataVolume {name}")
        try:
            return self._from_labels(volume)
        except Ignorable:
            return self._from_spec(volume["spec"])

    def _from_spec(self, value: Any) -> Json:
        spec = decode(_DATA_VOLUME_SPEC, value, "DataVolume spec")
        for key, _, kind in self._sources:
            if key in (source := spec.get("source", {})):
                # The namespace as it is written, even if there is none.
                return self._from(kind, source[key].get("name", ""), source[key].get("namespace", ""))
        if "sourceRef" not in spec:
            raise Ignorable("unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported")
        reference = spec["sourceRef"]
        if reference["kind"] != "DataSource":
            kind = reference["kind"]
            raise Ignorable(f"unable to infer defaults from DataVolumeSourceRef as Kind {kind} is not supported")
        return self._from_data_source(reference["name"], reference.get("namespace", self._namespace))

    def _from_data_source(self, name: str, namespace: str) -> Json:
        stored = get_required(self._get, "DataSource", namespace, name)
        data_source = decode(DATA_SOURCE, stored, f"DataSource {name}")
        try:
            return self._from_labels(data_source)
        except Ignorable:
            source = data_source["spec"]["source"]
        for key, _, kind in self._sources:
            if key in source:
                return self._from(kind, source[key].get("name", ""), source[key].get("namespace", ""))
        titles = " or ".join(title for _, title, _ in self._sources)
        raise Ignorable(f"unable to infer defaults from DataSource that doesn't provide {titles}")
