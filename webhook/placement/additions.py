"""What policies of this server add to launcher pods beside what KubeVirt writes, for all that says where pods go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook.k8s.types.scheduling import Toleration
from webhook.placement.groups import GroupPlacement
from webhook.placement.requirements import Label


class PodAdditions(msgspec.Struct, frozen=True):
    """What a launcher pod has from policies.

    Attributes:
        selector: the labels in its node selector, where nobody else's selector names their keys.
        required: the labels that each term of its required node affinity names.
        tolerations: those beside its VM's.
        preferred: terms of preferred node affinity, plain JSON.
        group: the rules of the VM's group about other pods; None: there are none.
        sources: which policy's value lies behind what KubeVirt itself requires, by the label's key, noun phrases.
    """

    selector: tuple[Label, ...] = ()
    required: tuple[Label, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[Any, ...] = ()
    group: GroupPlacement | None = None
    sources: Mapping[str, str] = {}

    def __add__(self, other: PodAdditions) -> PodAdditions:
        return PodAdditions(
            (*self.selector, *other.selector),
            (*self.required, *other.required),
            (*self.tolerations, *other.tolerations),
            (*self.preferred, *other.preferred),
            other.group or self.group,
            {**self.sources, **other.sources},
        )


NO_POD_ADDITIONS: Final = PodAdditions()


class Additions(msgspec.Struct, frozen=True):
    """What policies add to the pods of one VM.

    Attributes:
        next: to the next pod that KubeVirt makes for it, of a migration for example.
        present: what they can have added to the pod that it runs in, whatever they add by now.
        gaps: what is not known, clauses.
    """

    next: PodAdditions = NO_POD_ADDITIONS
    present: PodAdditions = NO_POD_ADDITIONS
    gaps: tuple[str, ...] = ()


NO_ADDITIONS: Final = Additions()
