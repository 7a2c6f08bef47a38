"""Which VMs are being evacuated, as their VMIs say.

Migrations that KubeVirt makes of evictions carry an annotation, which any user who may create a migration can write
too. So the annotation only says which VMIs are worth a look; what counts is the field in a VMI's own status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from webhook.facts import Facts, ObjectKey
from webhook.placement.machines import EVACUEES, Evacuee, Migration

# VMIs that are read in one review, beside twice the larger cap.
_READ_AT_LEAST: Final = 32

Place = tuple[str, str]  # namespace, name of a VMI


def claimed_evacuations(unfinished: Iterable[Migration]) -> tuple[Place, ...]:
    """The VMs of the migrations that say that they evacuate, the most believable first.

    First come those that only KubeVirt's controller can have made, of versions that write priorities. Then namespaces
    take turns, so that many forged migrations in one of them leave those of the others their place.

    Args:
        unfinished: migrations that have not ended.
    """
    by_namespace: dict[tuple[bool, str], dict[str, None]] = {}
    for migration in unfinished:
        if migration.evacuates:
            group = (not migration.is_prioritized, migration.meta.namespace or "")
            by_namespace.setdefault(group, {})[migration.vmi_name] = None
    turns = sorted(
        (doubtful, turn, namespace, name)
        for (doubtful, namespace), names in by_namespace.items()
        for turn, name in enumerate(names)
    )
    return tuple(dict.fromkeys((namespace, name) for _, _, namespace, name in turns))


def count_evacuations(places: Sequence[Place], cap: int, facts: Facts) -> Mapping[str, int]:
    """How many of these VMs are being evacuated, by namespace.

    A VMI that is gone or cannot be read is not counted: its owner may have made it unreadable.

    Args:
        places: namespace and name of each VM that may be evacuated.
        cap: the larger of the caps; no more VMIs are read than it takes to find it reached among as many forged ones.
        facts: the review's facts.

    Raises:
        NotRead: the VMIs have not been read yet; for the Reviewer.
    """
    most = _READ_AT_LEAST + 2 * cap
    keys: list[ObjectKey[Evacuee]] = [ObjectKey(EVACUEES, namespace, name) for namespace, name in places[:most]]
    facts.need(*keys)
    evacuated: Counter[str] = Counter()
    for key in keys:
        vmi = facts.get(key)
        if isinstance(vmi, Evacuee) and vmi.is_evacuated:
            evacuated[key.namespace] += 1
    return evacuated
