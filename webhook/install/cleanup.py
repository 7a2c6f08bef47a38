"""Taking our marks back from VMs, after the webhooks are gone: else we would put back what an update takes away.

A scheduler's name goes only where it is what the mark says; instancetypes and preferences stay, since a VM without them
would be another one. VMIs and pods are left alone: they end, and with them their marks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from webhook import names
from webhook.cluster.api import Refused, Requests, Transport, Unreachable, explain
from webhook.cluster.pages import pages
from webhook.errors import InputError
from webhook.objects import STORED_VMS, VMIS, Object, Resource, Stored

FIELD_MANAGER: Final = "kubevirt-webhook-cleanup"
MARKS: Final = (names.SCHEDULER_MARK, names.INSTANCETYPE_MARK, names.PREFERENCE_MARK)

_LAUNCHERS: Final = Resource("", "v1", "pods", "Pod", True, Object)
_MARKED_VMIS: Final = Resource(VMIS.group, VMIS.version, VMIS.plural, VMIS.kind, True, Object)
_LAUNCHER_LABEL: Final = {"labelSelector": f"{names.APP_LABEL}={names.LAUNCHER_APP}"}
_JSON_PATCH: Final = "application/json-patch+json"
_LIMIT: Final = 500
_SECONDS: Final = 60.0

Operation = dict[str, Any]


class Api(Transport, Requests, Protocol):
    """Reads and writes."""


class Task(msgspec.Struct, frozen=True):
    """What is to be done to one VM.

    Attributes:
        operations: JSON patch, which applies only to the values that were found.
        texts: the same in words.
        left: what stays, in words, and why.
    """

    namespace: str
    name: str
    operations: tuple[Operation, ...]
    texts: tuple[str, ...]
    left: str = ""

    @property
    def title(self) -> str:
        return f"VirtualMachine {self.namespace}/{self.name}"


def task(vm: Stored, *, allow_restart_required: bool) -> Task | None:
    """What is to be done to a VM; None where it carries no mark of ours.

    Args:
        allow_restart_required: change templates of running VMs too, which then ask for a restart.
    """
    annotations = vm.meta.annotations or {}
    operations: list[Operation] = []
    texts = []
    for mark in (names.INSTANCETYPE_MARK, names.PREFERENCE_MARK):
        if mark in annotations:
            operations += _removed(("metadata", "annotations", mark), annotations[mark])
            texts.append(f"the mark {mark} goes, {annotations[mark]} stays")
    scheduler, told = _scheduler(annotations, _mapping(vm.spec, "template"))
    left = ""
    if any(one["path"].startswith("/spec/") for one in scheduler) and _runs(vm) and not allow_restart_required:
        left = f"{told}, but it runs and would ask for a restart"
    elif scheduler:
        operations += scheduler
        texts.append(told)
    if not operations and not left:
        return None
    return Task(vm.meta.namespace or "", vm.meta.name or "", tuple(operations), tuple(texts), left)


def _scheduler(annotations: Mapping[str, Any], template: Mapping[str, Any]) -> tuple[list[Operation], str]:
    """Operations about the scheduler, and what they come to."""
    inner = _mapping(template, "metadata", "annotations")
    chosen = _mapping(template, "spec").get("schedulerName")
    outer_mark, inner_mark = annotations.get(names.SCHEDULER_MARK), inner.get(names.SCHEDULER_MARK)
    if not isinstance(inner_mark, str):
        # The template has no schema. We write strings; what else is there is not ours, and of any size and depth.
        inner_mark = None
    mark = inner_mark if outer_mark is None else outer_mark
    if mark is None:
        return [], ""
    operations = []
    if outer_mark is not None:
        operations += _removed(("metadata", "annotations", names.SCHEDULER_MARK), outer_mark)
    if inner_mark is not None:
        path = ("spec", "template", "metadata", "annotations", names.SCHEDULER_MARK)
        operations += _removed(path, inner_mark)
    if chosen == mark:
        operations += _removed(("spec", "template", "spec", "schedulerName"), chosen)
        return operations, f"the scheduler {chosen} goes, with its mark"
    kept = (
        f"the owner's {chosen if isinstance(chosen, str) else 'choice'} stays"
        if chosen
        else "there is no scheduler beside it"
    )
    return operations, f"the mark {names.SCHEDULER_MARK} goes, {kept}"


def _removed(path: Sequence[str], value: object) -> list[Operation]:
    pointer = "".join("/" + segment.replace("~", "~0").replace("/", "~1") for segment in path)
    return [{"op": "test", "path": pointer, "value": value}, {"op": "remove", "path": pointer}]


def _runs(vm: Stored) -> bool:
    return bool((vm.status or {}).get("created"))


def _mapping(value: object, *keys: str) -> Mapping[str, Any]:
    """What stands at a path; empty where it isn't what it should be."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


class Cleanup:
    """Finds marked VMs, and cleans them.

    Args:
        namespace: the only one; empty: all.
    """

    def __init__(self, api: Api, namespace: str = "") -> None:
        self._api: Final = api
        self._namespace: Final = namespace

    async def tasks(self, *, allow_restart_required: bool) -> list[Task]:
        """What is to be done, in the API server's order.

        Raises:
            InputError: VMs can't be listed.
        """
        found = []
        async with aclosing(self._all(STORED_VMS)) as vms:
            async for vm in vms:
                one = task(vm, allow_restart_required=allow_restart_required)
                if one:
                    found.append(one)
        return found

    async def remaining(self) -> tuple[int, int]:
        """How many VMIs and how many launcher pods carry a mark. Raises as `tasks`."""
        return await self._marked(_MARKED_VMIS, {}), await self._marked(_LAUNCHERS, _LAUNCHER_LABEL)

    async def clean(self, one: Task) -> str:
        """Do it; says why not, or ``""``."""
        path = STORED_VMS.path(quote(one.namespace), quote(one.name))
        query = {"fieldManager": FIELD_MANAGER}
        try:
            status, body = await self._api.request(
                "PATCH", path, query, list(one.operations), _JSON_PATCH, seconds=_SECONDS
            )
        except Unreachable as error:
            return error.why
        if status in (200, 404):
            return ""
        if status in (409, 422):
            return "it has changed meanwhile, or something refuses the change; look again"
        return explain("patch", STORED_VMS, one.namespace, status, body).why

    async def _marked(self, resource: Resource[Object], query: Mapping[str, str]) -> int:
        count = 0
        async with aclosing(self._all(resource, query)) as found:
            async for one in found:
                count += any(one.meta.annotation(mark) is not None for mark in MARKS)
        return count

    async def _all(self, resource: Resource[Any], query: Mapping[str, str] = {}) -> AsyncGenerator[Any, None]:
        try:
            async with aclosing(
                pages(self._api, resource, quote(self._namespace), query, limit=_LIMIT, seconds=_SECONDS)
            ) as listed:
                async for page in listed:
                    for one in page.items or ():
                        yield one
        except Refused as refused:
            if refused.status == 404:
                # KubeVirt isn't installed: nobody has a VM.
                return
            why = explain("list", resource, self._namespace, refused.status, refused.body).why
            raise InputError(why, resource.plural) from None
        except (Unreachable, TimeoutError) as error:
            why = error.why if isinstance(error, Unreachable) else f"no answer within {_SECONDS:.0f} s"
            raise InputError(why, resource.plural, "begin again: what was done stays") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InputError("the API server's list can't be decoded", resource.plural) from None
