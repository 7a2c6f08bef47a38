"""CEL of match conditions that several policies share."""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.kubevirt.launcher import controller_account
from webhook.policies.common.ownership import LAST_APPLIED

NOT_DELETED: Final = {"not-being-deleted": "!has(object.metadata.deletionTimestamp)"}
# Neither drains nor KubeVirt's own migrations may wait for kubevirt-webhook.
BY_A_USER: Final = f'!request.userInfo.username.endsWith(":{names.CONTROLLER_ACCOUNT}")'
LAUNCHERS: Final[dict[str, Any]] = {"matchLabels": {names.APP_LABEL: names.LAUNCHER_APP}}


def controlled_by(kind: str, group: str) -> str:
    """An object of a kind, of whatever version, is the controller of the object."""
    return (
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(owner, "
        "has(owner.controller) && owner.controller == true && "
        f'owner.kind == "{kind}" && owner.apiVersion.startsWith("{group}/"))'
    )


OF_A_VM: Final = controlled_by("VirtualMachine", names.KUBEVIRT_GROUP)


def has_annotation(root: str, key: str) -> str:
    """An object carries an annotation."""
    return f'has({root}.metadata.annotations) && "{key}" in {root}.metadata.annotations'


def created_or_changed(injected: str) -> str:
    """A VM is created, its spec changes, or its owner may declare as his own what was injected.

    Args:
        injected: CEL, whether the VM has anything that was injected.
    """
    return f'request.operation == "CREATE" || object.spec != oldObject.spec || ({injected}) && ({_MANIFESTS_CHANGED})'


def _manifests_changed() -> str:
    """An apply has changed the record of what manifests declare: that alone changes nothing of the spec."""

    def of_client_side(root: str) -> str:
        return f'({has_annotation(root, LAST_APPLIED)} ? {root}.metadata.annotations["{LAST_APPLIED}"] : "")'

    def of_server_side(root: str) -> str:
        fields = f"{root}.metadata.managedFields"
        return f'(has({fields}) ? {fields}.filter(entry, entry.operation == "Apply") : [])'

    ways = (of_client_side, of_server_side)
    return " || ".join(f"{record('object')} != {record('oldObject')}" for record in ways)


_MANIFESTS_CHANGED: Final = _manifests_changed()


def unset(parent: str, field: str) -> str:
    """A field is absent, null or empty."""
    # A schema that preserves unknown fields keeps null.
    return f'!has({parent}.{field}) || {parent}.{field} == null || {parent}.{field} == ""'


def made_by_kubevirt(kubevirt_namespace: str) -> str:
    """KubeVirt's controller sent the request; without the namespace, a controller of that name."""
    user = "request.userInfo.username"
    if kubevirt_namespace:
        return f'{user} == "{controller_account(kubevirt_namespace)}"'
    return f'{user}.startsWith("system:serviceaccount:") && {user}.endsWith(":{names.CONTROLLER_ACCOUNT}")'
