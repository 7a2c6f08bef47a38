"""Where the volumes of a VM can be used: what they require of the nodes of its pods.

kube-scheduler compares the claims of a pod with nodes (plugins VolumeBinding and VolumeZone): a bound claim needs a
node that reaches its PersistentVolume, one that waits for its first consumer needs a node for which its StorageClass
provisions volumes. Hotplugged volumes are in the pod of an attachment, which KubeVirt creates on the node that the
launcher pod has got: kube-scheduler chooses that node without regard to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from webhook.errors import Unavailable, quote
from webhook.facts import Facts, ListKey, ObjectKey
from webhook.k8s.types.meta import Object
from webhook.k8s.types.selectors import IN, NAME_FIELD, Expression, Term
from webhook.placement.machines import CLAIMS, STATE_PREFIX, STORAGE_CLASSES, VOLUMES, Claim, StorageClass, Vmi
from webhook.placement.requirements import Origin, Reachable
from webhook.text import pluralize

V = TypeVar("V", bound=Object)

# Of one VM, whose owner writes the list: the server reads them for anyone who looks at the page.
MAX_CLAIMS: Final = 64
_FEW: Final = 5


class VolumeRequirements(NamedTuple):
    """What the volumes of a VM require of nodes.

    Attributes:
        own: what those of the launcher pod require, which kube-scheduler compares.
        attached: what hotplugged ones require, which kube-scheduler does not regard.
        gaps: what is not known, clauses.
    """

    own: tuple[Reachable, ...] = ()
    attached: tuple[Reachable, ...] = ()
    gaps: tuple[str, ...] = ()


class NewClaim(NamedTuple):
    """A claim that is yet to be made, of a DataVolume.

    Attributes:
        storage_class: the one that the DataVolume names; empty: CDI chooses a default one.
    """

    storage_class: str


async def review_volumes_of_running(vmi: Vmi, namespace: str, facts: Facts) -> VolumeRequirements:
    """What the volumes of a VM that migrates require of its target: they are bound, since it runs with them."""
    claims, gaps = _claims_of_running(vmi), []
    if (state := vmi.state_volume) and state.name not in claims:
        gaps.append("for the VM's persistent state, KubeVirt makes a new volume: where, is not evaluated here")
    return await _review(_Review(vmi, namespace, facts, claims), gaps)


async def review_volumes_of_starting(
    vmi: Vmi, namespace: str, facts: Facts, made: Mapping[str, NewClaim]
) -> VolumeRequirements:
    """What the volumes of a VM require of the node on which it starts.

    Args:
        vmi: the VMI as it will be created.
        namespace: its namespace.
        facts: what is known of claims, PersistentVolumes and StorageClasses.
        made: the claims that the VM's ``dataVolumeTemplates`` make, by name.
    """
    claims, gaps = _claims_of(vmi), []
    if vmi.domain.has_state:
        name = vmi.meta.name or ""
        states = await facts.get(ListKey(CLAIMS, namespace, f"{STATE_PREFIX}={name}"))
        if isinstance(states, Unavailable):
            gaps.append(f"which nodes reach the VM's persistent state is not known: {states.why}")
        elif current := next((each for each in states or () if not each.meta.deletion_timestamp), None):
            claims[STATE_PREFIX] = current.meta.name or ""
        elif name:
            # So KubeVirt named it before it wrote the label; where there is none, it makes one.
            made = {f"{STATE_PREFIX}-{name}": NewClaim(""), **made}
            claims[STATE_PREFIX] = f"{STATE_PREFIX}-{name}"
    return await _review(_Review(vmi, namespace, facts, claims, made, starts=True), gaps)


def has_claims(vmi: Vmi) -> bool:
    """Whether any volume of a VM has a claim."""
    return bool(_claims_of(vmi))


def claim_keys(vmi: Vmi, namespace: str) -> tuple[ObjectKey[Claim], ...]:
    """What is read first of the volumes of a VM that runs."""
    claims = islice(_claims_of_running(vmi).values(), MAX_CLAIMS)
    return tuple(ObjectKey(CLAIMS, namespace, claim) for claim in claims)


def _claims_of_running(vmi: Vmi) -> dict[str, str]:
    state = vmi.state_volume
    of_state = {state.name or "": state.claim} if state and state.has_several_users and state.claim else {}
    return _claims_of(vmi) | of_state


def _claims_of(vmi: Vmi) -> dict[str, str]:
    volumes = (vmi.spec.volumes if vmi.spec else None) or ()
    return {each.name or "": each.claim for each in volumes if each and each.claim}


class _Review(NamedTuple):
    """One review.

    Attributes:
        claims: the names of claims by volume.
        starts: whether the VM is to start, so that claims may not be bound yet.
    """

    vmi: Vmi
    namespace: str
    facts: Facts
    claims: Mapping[str, str]
    made: Mapping[str, NewClaim] = {}
    starts: bool = False


async def _review(review: _Review, gaps: list[str]) -> VolumeRequirements:
    if not review.claims:
        return VolumeRequirements(gaps=tuple(gaps))
    if (more := len(review.claims) - MAX_CLAIMS) > 0:
        volumes = pluralize(more, "more volume")
        gaps.append(f"which nodes reach {volumes} of the VM was not looked up: {MAX_CLAIMS} is the limit")
        review = review._replace(claims=dict(islice(review.claims.items(), MAX_CLAIMS)))
    bound, unbound = await _read_claims(review, gaps)
    gaps += _used_by_others(review, {**bound, **unbound})
    required = [*await _bound(review, bound, gaps), *await _unbound(review, unbound, gaps)]
    attached = review.vmi.attached_volumes
    return VolumeRequirements(
        tuple(each for each in required if each.volume not in attached),
        tuple(each for each in required if each.volume in attached),
        tuple(gaps),
    )


async def _read_each(
    review: _Review, keys: Mapping[str, ObjectKey[V]], noun: str, gaps: list[str]
) -> dict[str, V | None]:
    """What the API server has by these keys, by volume, without what cannot be read: that is a gap."""
    found: dict[str, V | None] = {}
    unread: dict[str, str] = {}
    for (volume, key), fact in zip(keys.items(), await review.facts.all(*keys.values()), strict=True):
        if isinstance(fact, Unavailable):
            unread[volume] = f"{noun} {key.name} cannot be read: {fact.why}"
        else:
            found[volume] = fact
    if unread:
        gaps.append(f"which nodes reach {_listed(unread)} is not known: {next(iter(unread.values()))}")
    return found


async def _read_claims(review: _Review, gaps: list[str]) -> tuple[dict[str, Claim], dict[str, Claim | None]]:
    """The claims that are bound, by volume, and the others; None: there is no such claim yet."""
    keys = {volume: ObjectKey(CLAIMS, review.namespace, claim) for volume, claim in review.claims.items()}
    claims = await _read_each(review, keys, "PersistentVolumeClaim", gaps)
    bound = {volume: claim for volume, claim in claims.items() if claim and claim.volume}
    return bound, {volume: claim for volume, claim in claims.items() if volume not in bound}


def _used_by_others(review: _Review, claims: Mapping[str, Claim | None]) -> Iterator[str]:
    """That pods which use the VM's claims are not looked at, where one would keep the VM from starting, a clause.

    A VM that runs uses such a claim itself, and KubeVirt migrates it only with other claims.
    """
    alone = [volume for volume, claim in claims.items() if claim and claim.is_for_one_pod]
    if review.starts and alone:
        yield (
            f"whether another pod uses {_listed(alone)} with access mode ReadWriteOncePod: while one does,"
            " kube-scheduler finds no node for the VM"
        )


async def _bound(review: _Review, claims: Mapping[str, Claim], gaps: list[str]) -> list[Reachable]:
    keys = {volume: ObjectKey(VOLUMES, "", claim.volume) for volume, claim in claims.items()}
    required, gone = [], []
    for volume, persistent in (await _read_each(review, keys, "PersistentVolume", gaps)).items():
        if persistent is None or claims[volume].is_lost:
            gone.append(volume)
        elif persistent.terms:
            required.append(Reachable(Origin.VOLUMES, persistent.terms, volume))
    if gone:
        gaps.append(f"no node reaches {_listed(gone)}, whose PersistentVolumes do not exist")
    return required


async def _unbound(review: _Review, claims: Mapping[str, Claim | None], gaps: list[str]) -> list[Reachable]:
    """What claims require that are bound to no PersistentVolume yet."""
    if not claims:
        return []
    if not review.starts:
        gaps.append(f"which nodes reach {_listed(claims)} is not known: bound to no PersistentVolume")
        return []
    missing = [volume for volume, claim in claims.items() if not claim and review.claims[volume] not in review.made]
    if missing:
        names = ", ".join(quote(review.claims[volume]) for volume in missing[:_FEW])
        gaps.append(
            f"which nodes reach {_listed(missing)} is not known: the VM starts once their PersistentVolumeClaims exist"
            f" ({names})"
        )
    known = {volume: claim for volume, claim in claims.items() if volume not in missing}
    if not known:
        return []
    classes = await review.facts.get(ListKey(STORAGE_CLASSES, ""))
    if isinstance(classes, Unavailable):
        gaps.append(f"for which nodes {_listed(known)} can be provisioned is not known: {classes.why}")
        return []
    return [
        reachable
        for volume, claim in known.items()
        for reachable in _provisioned(review, volume, claim, classes or (), gaps)
    ]


def _provisioned(
    review: _Review, volume: str, claim: Claim | None, classes: tuple[StorageClass, ...], gaps: list[str]
) -> Iterator[Reachable]:
    """What a claim requires whose volume is to be provisioned, or the one that a DataVolume makes."""
    if claim and claim.selected_node:
        chosen = Term(fields=(Expression(NAME_FIELD, IN, (claim.selected_node,)),))
        yield Reachable(Origin.VOLUMES, (chosen,), volume)
        return
    name = claim.storage_class if claim else review.made[review.claims[volume]].storage_class
    found = next((each for each in classes if each.meta.name == name), None)
    if not name and not claim:
        found = _default(classes)
    if found is None:
        why = f"StorageClass {quote(name)} does not exist" if name else "it has no StorageClass"
        gaps.append(f"for which nodes volume {quote(volume)} can be provisioned is not known: {why}")
        return
    name = found.meta.name or ""
    if not found.provisions:
        gaps.append(
            f"which PersistentVolume volume {quote(volume)} would get is not evaluated: StorageClass {quote(name)}"
            " provisions none"
        )
        return
    if claim and not found.waits_for_consumer:
        gaps.append(
            f"which nodes reach volume {quote(volume)} is not known: kube-scheduler waits until its"
            f" PersistentVolumeClaim {quote(review.claims[volume])} is bound"
        )
    if found.terms:
        yield Reachable(Origin.VOLUMES, found.terms, volume, name)


def _default(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The StorageClass that CDI chooses where a DataVolume names none: of several default ones the youngest."""
    listed = list(classes)
    defaults = [each for each in listed if each.is_default_for_vms] or [each for each in listed if each.is_default]
    return max(defaults, key=lambda each: each.meta.creation_timestamp or "", default=None)


def _listed(volumes: Iterable[Any]) -> str:
    names = list(volumes)
    listed = ", ".join(quote(name) for name in names[:_FEW])
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{'volume' if len(names) == 1 else 'volumes'} {listed}{more}"
