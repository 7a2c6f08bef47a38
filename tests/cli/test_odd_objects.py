"""Whatever an object lacks or holds instead of what belongs there, no command ends in a traceback.

One part at a time of the objects that a command reads is replaced by null, an empty or another value, or left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.runner import EXAMPLES
from tests.review.test_mistyped import paths, without
from webhook.cli.main import main
from webhook.kubevirt import pools, templates

Json = Any

SETTINGS = ("--config", str(EXAMPLES / "settings.yaml"))
CLUSTER = ("--cluster-from", str(EXAMPLES / "cluster"), *SETTINGS)
CLUSTERS = EXAMPLES.parent / "tests" / "data" / "clusters"
ABSENT: Any = ...
VALUES: tuple[Any, ...] = (
    None,
    {},
    [],
    "",
    "x",
    5,
    -1,
    1.5,
    2**70,
    True,
    [None],
    [[]],
    [{}],
    {"x": None},
    {"": ""},
    "\x00",
    ABSENT,
)


def read(*files: Path) -> list[Json]:
    """All objects of files, as plain JSON."""
    texts = [each.read_text() for file in files for each in (sorted(file.glob("*.yaml")) if file.is_dir() else [file])]
    objects = [each for text in texts for each in yaml.safe_load_all(text) if each is not None]
    found: list[Json] = json.loads(json.dumps(objects, default=str))
    return found


def spoiled(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """A copy of a value with another one at a path, or without any."""
    if new is ABSENT:
        return without(value, path)
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = spoiled(value[path[0]], path[1:], new)
    return copy


def spoil(objects: list[Json], number: int, value: int) -> list[Json]:
    """The objects, of which one has another value in one of its places; both are chosen by numbers."""
    places = [(at, path) for at, obj in enumerate(objects) for path in ((), *paths(obj))]
    at, path = places[number % len(places)]
    new = VALUES[value]
    if new is ABSENT and not path:
        return objects[:at] + objects[at + 1 :]
    return [*objects[:at], spoiled(objects[at], path, new), *objects[at + 1 :]]


def check(result: Result) -> None:
    """That a command has ended by itself, and with a sentence where it could not read its input."""
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise error
    assert result.exit_code in (0, 1, 2, 3)
    assert "internal-error" not in result.output
    assert result.exit_code == 0 or result.output
    if result.exit_code == 2 and not result.stdout:
        # What is skipped, and what applies, may come before it.
        assert [line for line in result.stderr.splitlines() if line.startswith(("Error: ", "Usage: "))]


VMS = read(EXAMPLES / "vms")
WHOLE = read(EXAMPLES / "cluster")
# The objects of a cluster, and commands that read them from files.
FROM_FILES = {
    "examples": (
        [*WHOLE, *VMS],
        (
            *(("explain", "vm", f"shop/{name}", *SETTINGS) for name in ("web", "db", "till", "ledger")),
            ("explain", "migration", "shop/db", "--to", "zone=b"),
            ("explain", "migration", "shop/web"),
            ("explain", "spread", "shop/web", *SETTINGS),
            ("doctor", *SETTINGS),
            ("doctor", *SETTINGS, "-o", "json"),
        ),
    ),
    **{
        file.stem: (
            read(file),
            (
                ("explain", "drain", "--rolling"),
                ("explain", "update"),
                ("explain", "update", "--to-version", "1.9"),
                ("doctor", *SETTINGS),
            ),
        )
        for file in (EXAMPLES / "drain" / "cluster.yaml", *sorted(CLUSTERS.glob("*.yaml")))
    },
}

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
VM_SPEC = {"runStrategy": "Always", "template": TEMPLATE}
VM = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "${NAME}"}, "spec": VM_SPEC}


def manifest(version: str, kind: str, spec: Json = None, **fields: Any) -> Json:
    """An object of the namespace shop."""
    of_spec = {} if spec is None else {"spec": spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "odd", "namespace": "shop"}} | of_spec | fields


# What makes VMs, and other objects that are reviewed.
MAKERS = [
    manifest(
        f"{pools.POOL_GROUP}/v1beta1",
        pools.POOL,
        {"replicas": 1, "selector": SELECTOR, "virtualMachineTemplate": {**TEMPLATE, "spec": VM_SPEC}},
    ),
    manifest("kubevirt.io/v1", pools.REPLICA_SET, {"replicas": 1, "selector": SELECTOR, "template": TEMPLATE}),
    manifest(
        f"{templates.GROUP}/v1alpha1",
        templates.KIND,
        {
            "parameters": [{"name": "NAME", "value": "x"}, {"name": "N", "generate": "expression", "from": "[a-z]{3}"}],
            "virtualMachine": VM,
        },
    ),
    manifest("template.openshift.io/v1", "Template", objects=[VM], parameters=[{"name": "NAME"}]),
    {"apiVersion": "v1", "kind": "List", "items": [VM, manifest("kubevirt.io/v1", "VirtualMachine", VM_SPEC)]},
    manifest("kubevirt.io/v1", "VirtualMachineInstanceMigration", {"vmiName": "web", "addedNodeSelector": {"a": "b"}}),
]
REVIEW = [("review", "-", *CLUSTER, *more) for more in ((), ("--no-validate",), ("-o", "json"))]
FROM_INPUT = {
    "expand": (
        [*VMS, *WHOLE],
        [
            *(("expand", "-f", "-", "--explain", *more) for more in ((), ("--no-validate",))),
            ("expand", "-f", "-", "--show-secrets"),
        ],
    ),
    "review": ([*VMS, *WHOLE], REVIEW),
    "makers": (MAKERS, REVIEW),
}
REVIEWS = [read(file)[0] for file in sorted((EXAMPLES / "reviews").glob("*.yaml"))]

chosen = st.integers(0, 2**30), st.integers(0, len(VALUES) - 1), st.integers(0, 2**10)
unhurried = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("cluster", FROM_FILES)
@given(*chosen)
@unhurried
def test_objects_of_a_cluster(cluster: str, tmp_path: Path, number: int, value: int, command: int) -> None:
    objects, commands = FROM_FILES[cluster]
    file = tmp_path / "cluster.yaml"
    file.write_text(in_documents(spoil(objects, number, value)))
    argv = commands[command % len(commands)]
    check(CliRunner().invoke(main, [*argv, "--cluster-from", str(file)]))


@pytest.mark.parametrize("given_objects", FROM_INPUT)
@given(*chosen)
@unhurried
def test_objects_of_the_input(given_objects: str, number: int, value: int, command: int) -> None:
    objects, commands = FROM_INPUT[given_objects]
    text = in_documents(spoil(objects, number, value))
    check(CliRunner().invoke(main, commands[command % len(commands)], input=text))


@given(*chosen)
@unhurried
def test_admission_reviews(number: int, value: int, which: int) -> None:
    text = in_documents(spoil([REVIEWS[which % len(REVIEWS)]], number, value))
    check(CliRunner().invoke(main, ["review", "-", *CLUSTER], input=text))


def in_documents(objects: list[Json]) -> str:
    return "\n---\n".join(map(json.dumps, objects))


def found() -> Iterator[tuple[tuple[str, ...], list[Json]]]:
    """What has ended in a traceback: a command, and the objects that it reads, of a cluster or from the input."""
    yield (
        REVIEW[1],
        [manifest("kubevirt.io/v1", "VirtualMachine", VM_SPEC, metadata={"name": "x", "namespace": {"x": 1}})],
    )
    yield REVIEW[1], [manifest("kubevirt.io/v1", "VirtualMachine", VM_SPEC, metadata={"name": ["x"], "namespace": "a"})]
    yield REVIEW[0], [{**manifest("v1", "Namespace"), "kind": {"x": None}}, manifest("v1", "Namespace")]
    yield REVIEW[0], [manifest("template.openshift.io/v1", "Template", objects=5)]
    explain = ("explain", "vm", "shop/odd", *SETTINGS)
    for spec, status in (
        ({"domain": {"cpu": "x", "devices": {}}}, {}),
        ({"volumes": "x", "domain": {}}, {"nodeName": "node-1"}),
        ({"domain": {}}, {"nodeName": {"x": None}}),
        (None, {"nodeName": "node-1"}),
        (None, {}),
    ):
        vmi = manifest("kubevirt.io/v1", "VirtualMachineInstance", spec, status=status)
        yield explain, [*WHOLE, manifest("kubevirt.io/v1", "VirtualMachine", VM_SPEC), vmi]


@pytest.mark.parametrize(("command", "objects"), list(found()))
def test_what_was_found(command: tuple[str, ...], objects: list[Json], tmp_path: Path) -> None:
    if command[0] == "review":
        result = CliRunner().invoke(main, command, input=in_documents(objects))
    else:
        file = tmp_path / "cluster.yaml"
        file.write_text(in_documents(objects))
        result = CliRunner().invoke(main, [*command, "--cluster-from", str(file)])
    check(result)
