"""The whole way of a VM: from its manifest to the VMI that KubeVirt stores, and who set what on the way.

Nothing here decides; the stages stand in KubeVirt's order, each on what the one before has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from webhook.k8s import quantity
from webhook.kubevirt import webhooks
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.origins import FieldOrigin, Origins
from webhook.kubevirt.go_json.structs import Json, copy_json, decode, encode
from webhook.kubevirt.instancetype.apply import explain_expansion
from webhook.kubevirt.instancetype.find import MATCHERS
from webhook.kubevirt.rejection import Cause, Conflicts, Get, Rejection
from webhook.kubevirt.rules import read_vm
from webhook.kubevirt.vm.controller import Round
from webhook.kubevirt.webhooks import VmAdmission


class CreationStage(Enum):
    """The stage that denies the creation."""

    VM_WEBHOOK = "KubeVirt's webhook for VMs"
    CONTROLLER = "virt-controller"
    VMI_WEBHOOK = "KubeVirt's webhook for VMIs"
    API_SERVER = "the API server"
    EXPANSION = "KubeVirt's expand-spec API"


class CreationDenied(Rejection):
    """KubeVirt would not create the VMI; the text is its own.

    Args:
        stage: the stage of the creation that denies it.
        what: the message.
        causes: the single causes, where there are several or they have fields.
    """

    def __init__(self, stage: CreationStage, what: str, causes: Sequence[Cause] = ()) -> None:
        super().__init__(what)
        self.stage: Final = stage
        self.causes: Final = tuple(causes)


@dataclass(frozen=True, slots=True)
class Named:
    """An instancetype or a preference that took part.

    Attributes:
        kind: never empty.
        volume: the volume from which it was inferred; empty where the VM names it itself.
        revision: the ControllerRevision whose copy counted; empty for the live object.
    """

    kind: str
    name: str
    volume: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Created:
    """What comes of an object.

    Attributes:
        obj: plain JSON that shares nothing with what was given.
        origins: the origin of each leaf of ``obj``, by path.
        named: the instancetype and the preference, those that took part.
    """

    obj: Json
    origins: Mapping[str, FieldOrigin]
    named: Mapping[FieldOrigin, Named]


@dataclass(frozen=True, slots=True)
class Sent:
    """The VMI that virt-controller sends to the API server, before any webhook has seen it.

    Attributes:
        obj: plain JSON that shares nothing with what was given.
        named: the instancetype and the preference, those that took part.
    """

    obj: Json
    named: Mapping[FieldOrigin, Named]
    _decoded: Json
    _origins: Origins

    def stored(
        self, webhooks_made: Json, new_uuid: Callable[[], str], configuration: ClusterConfig = DEFAULTS
    ) -> Created:
        """The VMI as KubeVirt stores it; it is called once.

        Args:
            webhooks_made: what the webhooks have made of ``obj`` that are called before KubeVirt's own.
            new_uuid: makes the firmware's where it has none.
            configuration: KubeVirt's.

        Raises:
            CreationDenied: KubeVirt would not create it.
            InputError: it is malformed.
        """
        _change(self._decoded, self.obj, webhooks_made)
        self._origins.note(FieldOrigin.WEBHOOK)
        stored, by_path = _store(self._decoded, self._origins, configuration, new_uuid)
        return Created(stored, by_path, self.named)


def _change(decoded: Json, before: Json, after: Json) -> None:
    """Change a decoded object as its plain JSON was changed."""
    for key in before.keys() - after.keys():
        decoded.pop(key, None)
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        inner = before.get(key)
        if isinstance(value, dict) and isinstance(decoded.get(key), dict) and isinstance(inner, dict | None):
            _change(decoded[key], inner or {}, value)
        else:
            decoded[key] = copy_json(value)


def from_vm(vm: Any, get: Get, new_uuid: Callable[[], str], configuration: ClusterConfig = DEFAULTS) -> Created:
    """The VMI that KubeVirt creates and stores for a VM, running or not, where no other webhook changes it.

    Arguments and errors are those of `sent_for_vm`.
    """
    sent = sent_for_vm(vm, get, new_uuid, configuration)
    return sent.stored(sent.obj, new_uuid, configuration)


def sent_for_vm(vm: Any, get: Get, new_uuid: Callable[[], str], configuration: ClusterConfig = DEFAULTS) -> Sent:
    """The VMI that virt-controller sends for a VM, running or not.

    A VM with a UID is one that KubeVirt has admitted already, without it is new, and ``new_uuid`` makes its firmware's.

    Raises:
        CreationDenied: KubeVirt would not create it.
        InputError: an object is malformed.
    """
    rules = configuration.rules
    decoded = read_vm(vm, rules)
    volumes = {matcher.field: decoded["spec"].get(matcher.field, {}).get("inferFromVolume", "") for matcher in MATCHERS}
    seen = _Seen(get)
    origins = Origins(decoded, source=vm)
    old = read_vm(vm, rules) if "uid" in decoded["metadata"] else None
    if old is None:
        # The API server's first one, whatever an exported manifest says.
        decoded["metadata"]["generation"] = 1
    with _denying(CreationStage.VM_WEBHOOK):
        _check(webhooks.amend_vm(decoded, seen.get, new_uuid, configuration, old, origins.note))
        amended = encode(rules.vm, decoded)
        _check(webhooks.evaluate_vm(read_vm(amended, rules), seen.get, configuration))
    named = _find_named(read_vm(amended, rules), volumes, seen)
    with _denying(CreationStage.CONTROLLER):
        whole = Round(amended, seen.get, configuration, origins)
        whole.sync()
        vmi, built_from = whole.build()
    return Sent(encode(rules.vmi, vmi), named, vmi, built_from)


def from_vmi(vmi: Any, new_uuid: Callable[[], str], configuration: ClusterConfig = DEFAULTS) -> Created:
    """A VMI that no VM stands behind, as it is stored: instancetypes do not apply to it, whatever its annotations say.

    Raises:
        CreationDenied: KubeVirt would not create it.
        InputError: the VMI is malformed.
    """
    decoded = decode(configuration.rules.vmi, vmi)
    stored, by_path = _store(decoded, Origins(decoded, source=vmi), configuration, new_uuid)
    return Created(stored, by_path, {})


def require_memory(created: Created) -> Created:
    """The same, if it is a VMI with memory: KubeVirt's webhook for VMIs denies others (vmi-create-admitter.go).

    Raises:
        CreationDenied: nothing says how much memory it gets.
    """
    domain = created.obj["spec"]["domain"]
    requested = ((domain.get("resources") or {}).get("requests") or {}).get("memory") or "0"
    memory = domain.get("memory") or {}
    if quantity.parse(requested) or "guest" in memory or "hugepages" in memory:
        return created
    fields = (
        "'spec.domain.memory.guest', 'spec.domain.memory.hugepages.pageSize' or 'spec.domain.resources.requests.memory'"
    )
    raise CreationDenied(CreationStage.VMI_WEBHOOK, f"no memory requested, at least one of {fields} must be set")


def expand_vm(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> Created:
    """A VM with its instancetype and preference written out, as ``virtctl expand`` answers.

    Raises:
        CreationDenied: KubeVirt would not expand it.
        InputError: an object is malformed.
    """
    seen = _Seen(get)
    with _denying(CreationStage.EXPANSION):
        obj, origins = explain_expansion(vm, seen.get, configuration)
    return Created(obj, origins, _find_named(read_vm(vm, configuration.rules), {}, seen))


class _Seen:
    """Remembers what was looked up."""

    def __init__(self, get: Get) -> None:
        self._lookup: Final = get
        self.existing: Final[set[tuple[str, str]]] = set()

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        stored = self._lookup(kind, namespace, name)
        if stored is not None:
            self.existing.add((kind, name))
        return stored


@contextmanager
def _denying(stage: CreationStage) -> Iterator[None]:
    """Name the stage that denies the creation."""
    try:
        yield
    except CreationDenied:
        raise
    except Rejection as rejection:
        causes = rejection.conflicts if isinstance(rejection, Conflicts) else ()
        raise CreationDenied(stage, rejection.what, causes) from None


def _check(answer: VmAdmission) -> None:
    if not answer.is_allowed:
        raise CreationDenied(CreationStage.VM_WEBHOOK, answer.message, answer.causes)


def _find_named(vm: Json, volumes: Mapping[str, str], seen: _Seen) -> dict[FieldOrigin, Named]:
    named = {}
    for matcher in MATCHERS:
        vm_matcher = vm["spec"].get(matcher.field)
        if vm_matcher is None:
            continue
        revision, name = vm_matcher.get("revisionName") or matcher.captured_name(vm), vm_matcher.get("name", "")
        try:
            kind = matcher.kind(vm)
        except Rejection:
            # A revision counts whatever kind the matcher says; without one the controller says what is wrong.
            kind = vm_matcher["kind"]
        # Where a revision counts, KubeVirt does not read the live object.
        live = (kind, name) in seen.existing
        named[FieldOrigin(matcher.field)] = Named(kind, name, volumes.get(matcher.field, ""), "" if live else revision)
    return named


def _store(
    vmi: Json, origins: Origins, configuration: ClusterConfig, new_uuid: Callable[[], str]
) -> tuple[Json, dict[str, FieldOrigin]]:
    with _denying(CreationStage.VMI_WEBHOOK):
        webhooks.mutate_vmi(vmi, configuration, new_uuid, origins.note)
    # The VMI that virt-controller sends is read again by the webhook: what was computed loses its format there.
    shape = configuration.rules.vmi
    stored = encode(shape, encode(shape, vmi))
    return stored, origins.by_path(stored)
