from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.samples import vm
from tests.lookups import among
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.infer import Ignorable, infer
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.rules import read_vm

PREFIX = "instancetype.kubevirt.io/default-"
LABELS = {f"{PREFIX}instancetype": "u1", f"{PREFIX}instancetype-kind": "K", f"{PREFIX}preference": "linux"}


def stored(kind: str, name: str, namespace: str = "demo", labels: Json | None = None, **spec: Any) -> Json:
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}


def claim(name: str, namespace: str = "demo") -> Json:
    return stored("PersistentVolumeClaim", name, namespace, LABELS)


def snapshot(name: str, namespace: str = "other") -> Json:
    return stored("VolumeSnapshot", name, namespace, LABELS)


def source(kind: str, name: str, namespace: str = "other") -> Json:
    return {kind: {"name": name, "namespace": namespace}}


BY_CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "p"}}
BY_VOLUME = {"name": "v", "dataVolume": {"name": "d"}}
UNKNOWN_SOURCE = (
    "unable to infer defaults from DataSource that doesn't provide DataVolumeSourcePVC or DataVolumeSourceSnapshot"
)
REFERENCE = {"kind": "DataSource", "name": "s"}


def inferred(
    objects: list[Json], volume: Json, templates: list[Json] | None = None, field: str = "instancetype", **matcher: Any
) -> Json:
    given = vm(
        {"volumes": [{"name": "first"}, volume], "domain": {"memory": {"guest": "1Gi"}}},
        dataVolumeTemplates=templates,
        **{field: {"inferFromVolume": "v", **matcher}},
    )
    read = read_vm(given)
    infer(read, among(objects))
    return read


@pytest.mark.parametrize(
    ("objects", "volume", "template"),
    [
        ([claim("p")], BY_CLAIM, None),
        ([stored("DataVolume", "d", labels=LABELS)], BY_VOLUME, None),
        ([stored("DataVolume", "d", source=source("pvc", "p")), claim("p", "other")], BY_VOLUME, None),
        ([stored("DataVolume", "d", source=source("snapshot", "p")), snapshot("p")], BY_VOLUME, None),
        # Collected once it was filled.
        ([claim("d")], BY_VOLUME, None),
        ([claim("p", "other")], BY_VOLUME, {"source": source("pvc", "p")}),
        ([snapshot("p")], BY_VOLUME, {"source": source("snapshot", "p")}),
        ([stored("DataSource", "s", labels=LABELS)], BY_VOLUME, {"sourceRef": REFERENCE}),
        ([stored("DataSource", "s", "x", LABELS)], BY_VOLUME, {"sourceRef": {**REFERENCE, "namespace": "x"}}),
        (
            [stored("DataSource", "s", source=source("pvc", "p")), claim("p", "other")],
            BY_VOLUME,
            {"sourceRef": REFERENCE},
        ),
        (
            [stored("DataSource", "s", source=source("snapshot", "p")), snapshot("p")],
            BY_VOLUME,
            {"sourceRef": REFERENCE},
        ),
        ([stored("DataSource", "s", labels=LABELS)], BY_VOLUME, {"source": {"http": {}}, "sourceRef": REFERENCE}),
        ([stored("DataSource", "s", labels=LABELS), stored("DataVolume", "d", sourceRef=REFERENCE)], BY_VOLUME, None),
    ],
)
def test_chains(objects: list[Json], volume: Json, template: Json | None) -> None:
    templates = None if template is None else [{"metadata": {"name": name}, "spec": template} for name in ("c", "d")]

    assert inferred(objects, volume, templates)["spec"]["instancetype"] == {"name": "u1", "kind": "K"}
    assert inferred(objects, volume, templates, "preference")["spec"]["preference"] == {"name": "linux"}


@pytest.mark.parametrize(
    ("objects", "volume", "template", "text"),
    [
        ([], {"name": "v"}, None, "unable to infer defaults from volume v as type is not supported"),
        (
            [stored("PersistentVolumeClaim", "p")],
            BY_CLAIM,
            None,
            f"unable to find required {PREFIX}instancetype label on the volume",
        ),
        ([], BY_VOLUME, {}, "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported"),
        (
            [],
            BY_VOLUME,
            {"sourceRef": {"kind": "foo", "name": "s"}},
            "unable to infer defaults from DataVolumeSourceRef as Kind foo is not supported",
        ),
        (
            [stored("DataSource", "s", source=source("dataSource", "t"))],
            BY_VOLUME,
            {"sourceRef": REFERENCE},
            UNKNOWN_SOURCE,
        ),
    ],
)
def test_failures_that_may_be_ignored(objects: list[Json], volume: Json, template: Json | None, text: str) -> None:
    # The labels of a template don't count.
    templates = None if template is None else [{"metadata": {"name": "d", "labels": LABELS}, "spec": template}]

    with pytest.raises(Ignorable) as caught:
        inferred(objects, volume, templates, inferFromVolumeFailurePolicy="Reject")
    assert str(caught.value) == text
    ignored = inferred(objects, volume, templates, inferFromVolumeFailurePolicy="Ignore")
    assert "instancetype" not in ignored["spec"]
    assert ignored["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "1Gi"}


@pytest.mark.parametrize(
    ("volume", "template", "text"),
    [
        ({"name": "w"}, None, "unable to find volume v to infer defaults"),
        (BY_CLAIM, None, 'persistentvolumeclaims "p" not found'),
        (BY_VOLUME, None, 'persistentvolumeclaims "d" not found'),
        (BY_VOLUME, {"source": source("snapshot", "s")}, 'volumesnapshots.snapshot.storage.k8s.io "s" not found'),
        (BY_VOLUME, {"source": source("pvc", "q", "")}, 'persistentvolumeclaims "q" not found'),
        (BY_VOLUME, {"sourceRef": REFERENCE}, 'datasources.cdi.kubevirt.io "s" not found'),
    ],
)
def test_failures_that_are_never_ignored(volume: Json, template: Json | None, text: str) -> None:
    templates = None if template is None else [{"metadata": {"name": "d"}, "spec": template}]

    with pytest.raises(Rejection) as caught:
        inferred([claim("q")], volume, templates, inferFromVolumeFailurePolicy="Ignore")
    assert str(caught.value) == text


def test_success_with_ignore_takes_the_memory_away() -> None:
    kept = inferred([claim("p")], BY_CLAIM)
    taken = inferred([claim("p")], BY_CLAIM, inferFromVolumeFailurePolicy="Ignore")
    preferred = inferred([claim("p")], BY_CLAIM, None, "preference", inferFromVolumeFailurePolicy="Ignore")

    assert "memory" in kept["spec"]["template"]["spec"]["domain"]
    assert "memory" not in taken["spec"]["template"]["spec"]["domain"]
    assert "memory" in preferred["spec"]["template"]["spec"]["domain"]


def test_an_empty_label_is_a_label() -> None:
    found = inferred([stored("PersistentVolumeClaim", "p", labels={f"{PREFIX}instancetype": ""})], BY_CLAIM)

    assert found["spec"]["instancetype"] == {}
