"""The instancetypes policy and owners who declare their VMs and apply them again and again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from .support.kube import Json, KubeError, KubeObject
from .support.sizes import LARGE, LINUX, MUTATE, SMALL, is_ours, marks_of, matchers_of
from .support.tenant import Tenant
from .support.workloads import VMS, vm

# Client-side apply remembers the applied manifest in an annotation, and server-side apply has field owners.
both_ways = pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["client-side", "server-side"])


def kubectl(tenant: Tenant, *arguments: str, manifest: Json, warns: str = "") -> str:
    """The output of kubectl, which reads a manifest; a difference, a conflict or an unexpected warning is a failure.

    Args:
        warns: words of the one warning; empty: there is none.
    """
    where = (f"--namespace={tenant.namespace}", "--filename=-")
    done = tenant.server.access.kubectl(*arguments, *where, stdin=json.dumps(manifest))
    assert len(done.stderr.splitlines()) == bool(warns)
    assert warns in done.stderr
    return done.stdout


def apply(tenant: Tenant, manifest: Mapping[str, Any], manager: str) -> KubeObject:
    """Server-side apply that takes nothing over by force."""
    metadata = {**manifest["metadata"], "namespace": tenant.namespace}
    return tenant.owner.apply({**manifest, "metadata": metadata}, fieldManager=manager, force="false")


def found(tenant: Tenant) -> KubeObject:
    return tenant.owner.get(VMS, "web", tenant.namespace)


def managers_of(vm: Mapping[str, Any], field: str = "f:instancetype") -> list[str]:
    """The managers that own a field that the webhook writes."""
    return [it["manager"] for it in vm["metadata"]["managedFields"] if f'"{field}"' in json.dumps(it["fieldsV1"])]


@both_ways
def test_applied_again_nothing_changes(sized: Tenant, way: tuple[str, ...]) -> None:
    kubectl(sized, "apply", *way, manifest=vm())
    created = found(sized)

    assert kubectl(sized, "diff", *way, manifest=vm()) == ""
    kubectl(sized, "apply", *way, manifest=vm())

    assert found(sized) == created
    assert is_ours(created)


@both_ways
def test_applied_with_a_change_the_defaults_stay(sized: Tenant, way: tuple[str, ...]) -> None:
    kubectl(sized, "apply", *way, manifest=vm())

    kubectl(sized, "apply", *way, manifest=vm(runStrategy="Halted"))

    assert found(sized)["spec"]["runStrategy"] == "Halted"
    assert is_ours(found(sized))
    # They were never gone.
    assert sized.verdicts(path=MUTATE) == ["patched defaults-injected", "allowed instancetype-unchanged"]


@both_ways
def test_an_owner_who_starts_to_declare_another_gets_it(sized: Tenant, way: tuple[str, ...]) -> None:
    kubectl(sized, "apply", *way, manifest=vm())

    kubectl(sized, "apply", *way, manifest=vm(instancetype=LARGE))
    declared = found(sized)
    kubectl(sized, "apply", *way, manifest=vm(instancetype=LARGE))

    assert matchers_of(declared) == [LARGE, LINUX]
    assert found(sized) == declared


@both_ways
def test_an_owner_who_stops_declaring_one_is_obeyed(sized: Tenant, way: tuple[str, ...]) -> None:
    kubectl(sized, "apply", *way, manifest=vm(instancetype=LARGE, preference=LINUX))

    kubectl(sized, "apply", *way, manifest=vm(), warns="[size-removed]")

    assert matchers_of(found(sized)) == marks_of(found(sized)) == [None, None]


def test_a_replace_by_kubectl_keeps_the_defaults(sized: Tenant) -> None:
    kubectl(sized, "create", manifest=vm())

    kubectl(sized, "replace", manifest=vm(runStrategy="Halted"))
    kubectl(sized, "replace", manifest=vm())

    assert is_ours(found(sized))


def test_nobody_owns_what_we_wrote_and_anybody_may_declare_it(sized: Tenant) -> None:
    first = apply(sized, vm(), "first")
    declared = apply(sized, vm(instancetype=LARGE), "second")
    again = apply(sized, vm(), "first")

    assert (matchers_of(first), managers_of(first)) == ([SMALL, LINUX], [])
    assert (matchers_of(declared), managers_of(declared)) == ([LARGE, LINUX], ["second"])
    assert (matchers_of(again), managers_of(again)) == ([LARGE, LINUX], ["second"])
    with pytest.raises(KubeError, match=r'conflict.* with "second"') as refused:
        apply(sized, vm(instancetype=SMALL), "third")
    assert refused.value.status == 409


@both_ways
def test_an_applier_who_now_says_a_size_gets_a_vm_of_that_size(sized: Tenant, way: tuple[str, ...]) -> None:
    """A size beside a matcher is a conflict, for KubeVirt too; the injected matcher gives way in the same request."""
    kubectl(sized, "apply", *way, manifest=vm())
    made = vm()
    made["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "2Gi"}

    kubectl(sized, "apply", *way, manifest=made, warns="[default-withdrawn]")
    kubectl(sized, "apply", *way, manifest=made)

    assert matchers_of(found(sized)) == marks_of(found(sized)) == [None, None]
    assert kubectl(sized, "diff", *way, manifest=made) == ""
