"""What the policies that are on add to the launcher pods of a namespace, for all that says where pods go."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from webhook.errors import Unavailable
from webhook.facts import Facts, FindAdditions, NamespaceKey
from webhook.placement.additions import NO_POD_ADDITIONS, Additions
from webhook.placement.machines import LauncherPod, Vmi
from webhook.policies.registry import POLICIES
from webhook.review.scope import enforces
from webhook.settings.model import Settings


def additions_by(settings: Settings, gaps: tuple[str, ...] = ()) -> FindAdditions:
    """Finds what policies add by these settings; ``gaps`` say what is not known of those, clauses."""
    return partial(_find, settings, gaps)


async def _find(
    settings: Settings, unknown: tuple[str, ...], vmi: Vmi, pod: LauncherPod | None, namespace: str, facts: Facts
) -> Additions:
    to_next, to_present, gaps = NO_POD_ADDITIONS, NO_POD_ADDITIONS, [*unknown]
    here = replace(vmi, metadata=replace(vmi.meta, namespace=namespace))
    for policy in POLICIES:
        if policy.pods is None:
            continue
        to_present += policy.pods.added(vmi, pod)
        section = settings.policy(policy.name)
        place = await facts.get(NamespaceKey(namespace))
        if isinstance(place, Unavailable):
            gaps.append(f"what the policy {policy.name} adds to the pod: {place.why}")
        elif await enforces(policy.name, place, facts, section.cluster_wide, settings.every_excluded_namespace):
            annotations = (place.meta.annotations if place else None) or {}
            to_next += policy.pods.adds(here, section.with_annotations(annotations))
    return Additions(to_next, to_present, tuple(gaps))
