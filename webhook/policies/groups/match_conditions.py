"""What keeps requests away that the policy would allow without changes anyway."""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.placement.groups import GROUP_LABEL
from webhook.policies.common.match_conditions import BY_A_USER, LAUNCHERS, NOT_DELETED, made_by_kubevirt, unset
from webhook.policies.groups.settings import GroupSettings

IN_A_GROUP: Final[dict[str, Any]] = {"matchExpressions": [{"key": GROUP_LABEL, "operator": "Exists"}]}
PODS_IN_A_GROUP: Final[dict[str, Any]] = {**LAUNCHERS, **IN_A_GROUP}
_TEMPLATE: Final = "object.spec.template.metadata"


def _labels(root: str) -> str:
    return f'has({root}.labels) && {root}.labels != null && "{GROUP_LABEL}" in {root}.labels'


def of_vms(_: GroupSettings) -> dict[str, str]:
    """The conditions on VMs, by name: they or their templates name a group, and the template is new or changed."""
    in_template = f"has(object.spec.template) && has({_TEMPLATE}) && {_TEMPLATE} != null && {_labels(_TEMPLATE)}"
    return {
        **NOT_DELETED,
        "names-a-group": f"(has(object.spec) && {in_template}) || ({_labels('object.metadata')})",
        "created-or-changed": (
            'request.operation == "CREATE" || object.spec != oldObject.spec'
            f" || (({_labels('object.metadata')}) && !({_labels('oldObject.metadata')}))"
        ),
    }


def of_vmis(_: GroupSettings) -> dict[str, str]:
    """None beside the label."""
    return {}


def of_pods(settings: GroupSettings) -> dict[str, str]:
    """The conditions on launcher pods, by name."""
    return {
        "made-by-kubevirt": made_by_kubevirt(settings.kubevirt_namespace),
        "unbound": unset("object.spec", "nodeName"),
    }


def of_migrations(_: GroupSettings) -> dict[str, str]:
    """The conditions on migrations, by name: KubeVirt's own, for drains, must not wait for kubevirt-webhook."""
    return {"made-by-a-user": BY_A_USER}


def of_evictions(_: GroupSettings) -> dict[str, str]:
    """The conditions on Evictions, by name. An Eviction lacks its pod's labels, so its name is tested."""
    return {"of-a-launcher-pod": f'request.name.startsWith("{names.LAUNCHER_APP}-")', "not-by-kubevirt": BY_A_USER}
