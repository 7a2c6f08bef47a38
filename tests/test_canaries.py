"""A canary in every string field of VMs, VMIs, DataVolumes and pods: a secret, by its place or its look, stays in.

The fields are those of KubeVirt's CRDs (tests/data/*-strings.txt: paths, ``[]`` an item, ``*`` a member) and of the
Kubernetes client's pod.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio.client import models

from tests.builders import Json, launcher_pod
from tests.looks import CANARY, LOOKS, TRACES
from tests.policies.instancetypes import world as sizes
from tests.secrets import DISKS, body_of, settings, told, world
from webhook.admission.redaction import redact, redact_at
from webhook.review.endpoints import ENDPOINTS

DATA = Path(__file__).parent / "data"
# Fields that hold secrets by nature. Headers and variables get a revealing name, in `put`.
SECRET = re.compile(
    r"cloudInit\w+\.(userData|networkData)(Base64)?$|[hH]eaders\.\[\]\.value$|\.extraHeaders\.\[\]$|\.sev\.(session|dhCert)$"
    r"|\.env\.\[\]\.value$"
)


def fields(name: str) -> list[str]:
    return (DATA / f"{name}-strings.txt").read_text().splitlines()


def of_model(kind: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The string fields of one of the client's models, which are those of the API."""
    model = getattr(models, kind, None)
    if model is None or kind in above or not hasattr(model, "openapi_types"):
        return
    for attribute, declared in model.openapi_types.items():
        name = model.attribute_map[attribute]
        suffix, inner = "", declared
        while match := re.fullmatch(r"(list\[|dict\(str, )(.+)[\])]", inner):
            suffix, inner = suffix + (".[]" if match[1] == "list[" else ".*"), match[2]
        if inner == "str":
            yield name + suffix
        else:
            yield from (f"{name}{suffix}.{rest}" for rest in of_model(inner, (*above, kind)))


FIELDS: dict[str, list[str]] = {
    "VirtualMachine": [
        *fields("virtualmachine"),
        *(f"spec.template.{path}" for path in fields("virtualmachineinstance") if path.startswith("spec.")),
    ],
    "VirtualMachineInstance": fields("virtualmachineinstance"),
    "Pod": [f"spec.{path}" for path in of_model("V1PodSpec")],
}


def put(obj: Json, path: str, value: str, member: str = "canary") -> Json:
    """The object with a value at a path; headers and variables get a revealing name."""
    steps = path.split(".")
    here: Any = obj
    for at, step in enumerate(steps):
        key: Any = 0 if step == "[]" else member if step == "*" else step
        last = at == len(steps) - 1
        fresh: Any = value if last else [] if steps[at + 1] == "[]" else {}
        if step == "[]":
            here.insert(0, fresh)
        elif last or not isinstance(here.get(key), type(fresh)):
            here[key] = fresh
        here = here[key] if not last else here
    if re.search(r"(Headers|\.env)\.\[\]\.value$", path):
        here["name"] = "X-Auth-Token"
    return obj


def test_the_fields_are_all_there() -> None:
    assert {kind: len(paths) > 200 for kind, paths in FIELDS.items()} == dict.fromkeys(FIELDS, True)
    assert sum("dataVolumeTemplates" in path for path in FIELDS["VirtualMachine"]) > 60
    assert "spec.containers.[].env.[].value" in FIELDS["Pod"]
    assert sum(SECRET.search(path) is not None for paths in FIELDS.values() for path in paths) > 30


@pytest.mark.parametrize("kind", FIELDS)
def test_places_of_secrets_are_hidden_and_all_others_readable(kind: str) -> None:
    for path in FIELDS[kind]:
        obj = put({}, path, CANARY)
        secret = SECRET.search(path) is not None
        assert (CANARY not in json.dumps(redact(obj))) is secret, path
        for segment in ("spec", "status"):
            if segment in obj:
                assert (CANARY not in json.dumps(redact_at((segment,), obj[segment]))) is secret, path


@pytest.mark.parametrize("kind", FIELDS)
def test_looks_of_secrets_are_hidden_in_every_field(kind: str) -> None:
    for path in FIELDS[kind]:
        for name, text in LOOKS.items():
            shown = json.dumps(redact(put({}, path, text)))
            assert not any(trace in shown for trace in TRACES), (path, name)
            # An object that is not as its kind has it may have them as its keys.
            shown = json.dumps(redact(put({}, f"{path}.*", "x", member=text)))
            assert not any(trace in shown for trace in TRACES), (path, name)


BASES: dict[str, Json] = {
    "VirtualMachine": sizes.vm(DISKS, instancetype=sizes.SMALL, preference=sizes.FEDORA),
    "VirtualMachineInstance": sizes.vmi(DISKS),
    "Pod": launcher_pod(),
}


@pytest.mark.parametrize(
    "endpoint", [e for e in ENDPOINTS if e.kind in FIELDS and e.stage == "enforce"], ids=lambda e: e.path
)
def test_no_endpoint_tells_what_a_field_holds(endpoint: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Denial, causes, warnings, audit annotations, audit line, Event and log."""
    caplog.set_level(logging.DEBUG)
    cluster, made = world("enforce", dead=False), settings(expand=True)
    looks = cycle(LOOKS.values())
    for path in ["metadata.name", "metadata.namespace", "metadata.annotations.*", *FIELDS[endpoint.kind]]:
        obj = put(copy.deepcopy(BASES[endpoint.kind]), path, next(looks))
        if endpoint.sub_resource:
            obj["metadata"].setdefault("name", "x")
        shown, _ = told(endpoint, body_of(endpoint, obj, None, dry_run=False), cluster, made)
        assert not any(json.dumps(trace)[1:-1] in shown for trace in TRACES), path
    assert not any(trace in caplog.text for trace in TRACES)
