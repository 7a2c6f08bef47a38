"""Passes an installation's fields from one tool to another.

The API server records who applied which field (``metadata.managedFields``). A tool that takes over what another one
installed either meets conflicts or, with force, shares the fields: then a field or a webhook entry that its next
version leaves out remains, since the other tool still owns it. Renaming the owner avoids both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from webhook.errors import InputError
from webhook.install.plan import path, title
from webhook.install.registration import Manifest, advise, answered, object_in
from webhook.k8s.client.api import Requests
from webhook.k8s.types.meta import decode_status

# Helm 3 writes objects as this manager, by requests that are not applies.
HELM: Final = "helm"
FIELD_MANAGER: Final = "kubevirt-webhook-hand-over"
_SECONDS: Final = 30.0


class OwnershipTransfer(msgspec.Struct, frozen=True):
    """The fields of one object that pass to another owner.

    Attributes:
        title: the object, as ``KIND NAMESPACE/NAME``.
        operations: a JSON patch, which applies only to the version that was read.
    """

    title: str
    path: str
    operations: tuple[dict[str, Any], ...]


def rename_manager(entries: Iterable[Mapping[str, Any]], source: str, target: str) -> list[dict[str, Any]] | None:
    """The ``managedFields`` in which ``target`` has what it and ``source`` own; None if ``source`` owns nothing."""
    others, parts = list[dict[str, Any]](), list[dict[str, Any]]()
    operation = "Update" if target == HELM else "Apply"
    for entry in entries:
        owner = entry.get("manager"), entry.get("operation")
        is_part = not entry.get("subresource") and (owner[0] == source or owner == (target, operation))
        (parts if is_part else others).append(dict(entry))
    if not any(entry.get("manager") == source for entry in parts):
        return None
    fields: dict[str, Any] = {}
    for entry in parts:
        _unite(fields, entry.get("fieldsV1") or {})
    # A later time than that of any other entry is not needed: the API server reads none of them.
    return [*others, {**parts[-1], "manager": target, "operation": operation, "fieldsV1": fields}]


async def transfers(api: Requests, manifests: Iterable[Manifest], source: str, target: str) -> list[OwnershipTransfer]:
    """What has to be changed of those objects that exist, without changing it, so that ``target`` owns its fields.

    Raises:
        InputError: the API server gives no answer, or denies a request.
    """
    result = []
    for manifest in manifests:
        status, body = await answered(api.request("GET", path(manifest), seconds=_SECONDS), title(manifest))
        if status == 404:
            continue
        if status != 200:
            raise _denial(title(manifest), status, body)
        metadata = object_in(body, title(manifest))["metadata"]
        fields = rename_manager(metadata.get("managedFields") or (), source, target)
        if fields is not None:
            operations = (
                {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
                {"op": "replace", "path": "/metadata/managedFields", "value": fields},
            )
            result.append(OwnershipTransfer(title(manifest), path(manifest), operations))
    return result


async def transfer(api: Requests, one: OwnershipTransfer) -> None:
    """Change the owner of one object's fields, unless the object has changed; raises as `transfers`."""
    query, kind = {"fieldManager": FIELD_MANAGER}, "application/json-patch+json"
    patch = api.request("PATCH", one.path, query, one.operations, kind, seconds=_SECONDS)
    status, body = await answered(patch, one.title)
    if status != 200:
        raise _denial(one.title, status, body)


def _unite(into: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Add a set of fields to another one."""
    for key, value in fields.items():
        if isinstance(value, Mapping):
            _unite(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _denial(where: str, status: int, body: bytes) -> InputError:
    error = decode_status(body)
    fix = advise(status, error, "get and patch it") or "run the command again"
    return InputError(f"the API server answered status {status}: {error.text}", where, fix)
