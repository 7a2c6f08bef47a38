"""What launcher pods have from groups, for forecasts of where they go: as `place_pod` would write it, or has."""

from __future__ import annotations

from webhook.placement.additions import NO_POD_ADDITIONS, PodAdditions
from webhook.placement.groups import GROUP_LABEL, parse, required_labels
from webhook.placement.machines import LauncherPod, Vmi
from webhook.policies.groups.placement import placement_of, placement_of_vmi
from webhook.policies.groups.settings import INJECTED_ANNOTATION, GroupSettings


def added_to_next(vmi: Vmi, settings: GroupSettings) -> PodAdditions:
    """What the next pod of a VMI gets; of one that does not run yet, what its group requires will be recorded."""
    namespace = vmi.meta.namespace or ""
    placement = placement_of_vmi(vmi, namespace, settings)
    if placement is None:
        return NO_POD_ADDITIONS
    if not vmi.node_name:
        name = vmi.meta.label(GROUP_LABEL) or ""
        group = settings.group(name, namespace)
        placement = placement_of(name, group) if group else placement
    return PodAdditions(
        required=tuple(required_labels(placement)), preferred=tuple(placement.preferred_nodes()), group=placement
    )


def added_to_present(_: Vmi, pod: LauncherPod | None) -> PodAdditions:
    """What the pod that a VMI runs in can have, by the annotation that says so."""
    placement = parse(pod.meta.annotation(INJECTED_ANNOTATION)) if pod else None
    if placement is None:
        return NO_POD_ADDITIONS
    return PodAdditions(required=tuple(required_labels(placement)), group=placement)
