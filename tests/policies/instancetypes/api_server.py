"""A model of what an API server, this server and KubeVirt make of an owner's manifests, as far as VMs go.

Admission comes after the merge and after the owners of fields were computed, as in the real one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jsonpatch
import msgspec

from tests import builders
from tests.builders import AVAILABLE, Json, known, review
from tests.kubevirt import plain
from tests.lookups import among
from tests.owners import merge_patch
from tests.policies.decisions import evaluate, patched
from tests.policies.instancetypes.world import instancetype, preference
from webhook.facts import Facts, Key, ListKey, ObjectKey, SchedulerKey
from webhook.kubevirt.config import DEFAULTS
from webhook.policies.common.ownership import LAST_APPLIED
from webhook.settings.model import InstancetypeSettings

OBJECTS = (
    instancetype("u1.small", memory={"guest": "2Gi"}, cpu={"guest": 1}),
    instancetype("u1.medium", memory={"guest": "4Gi"}, cpu={"guest": 1}),
    instancetype("u1.nano", memory={"guest": "512Mi"}, cpu={"guest": 1}),
    instancetype("own", kind="VirtualMachineInstancetype", memory={"guest": "2Gi"}),
    instancetype("placed", kind="VirtualMachineInstancetype", memory={"guest": "2Gi"}, schedulerName="volcano"),
    preference("fedora", requirements={"memory": {"guest": "2Gi"}}),
    preference("alpine", requirements={"memory": {"guest": "512Mi"}}),
    preference("own", kind="VirtualMachinePreference"),
)


class Refused(Exception):  # noqa: N818 - an answer
    """The API server denied a request."""


class ApiServer:
    """VMs by their names in one namespace, in which both policies enforce.

    Args:
        settings: of the instancetypes policy.
    """

    def __init__(self, objects: Iterable[Json] = OBJECTS, **settings: Any) -> None:
        self._objects = {(found["kind"], found["metadata"]["name"]): found for found in objects}
        self._get = among(objects)
        self._settings = InstancetypeSettings(**settings)
        self._stored: dict[str, Json] = {}
        self._applied: dict[str, Json] = {}

    def write(self, way: str, after: Json, before: Json | None = None) -> Json:
        """The VM as it is stored after an owner has written a manifest.

        Args:
            before: the manifest that was written last; None: the VM does not exist yet.

        Raises:
            `Refused`: the API server or a policy denied the manifest.
        """
        name = after["metadata"]["name"]
        old = self._stored.get(name)
        changed = _WRITERS[way](self, name, old, after, before)
        changed["metadata"]["namespace"] = "demo"
        changed["metadata"]["managedFields"] = [_entry(self._applied[name])] if name in self._applied else []
        stored = self._admitted(changed, old)
        self._stored[name] = stored
        return copy.deepcopy(stored)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _apply_client_side(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        manifest = copy.deepcopy(after)
        manifest["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(after)}
        if old is None:
            return manifest
        last = json.loads(old["metadata"]["annotations"][LAST_APPLIED])
        merged: Json = _merged(_merged(old, manifest), _only_removed(merge_patch(last, after)))
        return merged

    def _apply_server_side(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        declared = {"spec": after["spec"]}
        merged = copy.deepcopy(after) if old is None else _merged(old, after)
        if name in self._applied:
            for path in _leaves(self._applied[name]) - _leaves(declared):
                _remove(merged, path)
        self._applied[name] = declared
        return merged

    def _replace(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        return copy.deepcopy(after)

    def _patch(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        return copy.deepcopy(after) if old is None else _merged(old, merge_patch(before, after))

    def _patch_json(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        if old is None:
            return copy.deepcopy(after)
        patched: Json = jsonpatch.apply_patch(old, jsonpatch.make_patch(before, after))
        return patched

    # -- admission -----------------------------------------------------------------------------------------------------

    def _admitted(self, vm: Json, old: Json | None) -> Json:
        # The API server does not call the webhook for requests that change nothing in the spec.
        if old is None or old["spec"] != vm["spec"]:
            for policy in ("instancetypes", "scheduling"):
                vm = self._mutated(policy, vm, old)
        mutated = plain.mutate_vm(vm, self._get, lambda: "u", DEFAULTS, old)
        for answer in (mutated, plain.validate_vm(vm, self._get, DEFAULTS)):
            if not answer.is_allowed:
                raise Refused(answer.message)
        return vm

    def _mutated(self, policy: str, vm: Json, old: Json | None) -> Json:
        body = review(vm, user="owner", operation="UPDATE" if old else "CREATE", oldObject=old)
        settings = self._settings if policy == "instancetypes" else builders.scheduling()
        decision = evaluate(f"/mutate/{policy}/virtualmachines/enforce", body, Facts(peek=self._peek), settings)
        if decision.denial:
            raise Refused(decision.denial.message)
        return patched(vm, decision)

    def _peek(self, key: Key[Any]) -> object:
        if isinstance(key, ObjectKey):
            found = self._objects.get((key.resource.kind, key.name))
            return None if found is None else msgspec.convert(found, key.resource.view)
        if isinstance(key, ListKey):
            return ()
        facts: dict[Key[Any], object] = {SchedulerKey("kubevirt"): AVAILABLE, **known()}
        return facts[key]


_Writer = Callable[[ApiServer, str, Json | None, Json, Json | None], Json]
_WRITERS: Mapping[str, _Writer] = {
    "client-side apply": ApiServer._apply_client_side,
    "server-side apply": ApiServer._apply_server_side,
    "replace": ApiServer._replace,
    "merge patch": ApiServer._patch,
    "JSON patch": ApiServer._patch_json,
}


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _only_removed(patch: Json) -> Json:
    """The fields that a merge patch removes."""
    inner = {key: _only_removed(value) for key, value in patch.items() if isinstance(value, dict)}
    return {key: value for key, value in inner.items() if value} | {
        key: None for key, value in patch.items() if value is None
    }


def _leaves(value: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths that an applier owns; lists count as a whole."""
    if not isinstance(value, dict) or not value:
        return {path}
    return {leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))}


def _remove(root: Json, path: tuple[str, ...]) -> None:
    """Takes a leaf out, and the maps that become empty by that."""
    if len(path) > 1:
        inner = root.get(path[0])
        if not isinstance(inner, dict):
            return
        _remove(inner, path[1:])
        if inner:
            return
    root.pop(path[0], None)


def _entry(declared: Json) -> Json:
    def fields(value: Any) -> Json:
        return {f"f:{key}": fields(item) for key, item in value.items()} if isinstance(value, dict) else {}

    return {"manager": "flux", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields(declared)}
