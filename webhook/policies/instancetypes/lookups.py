"""Facts as KubeVirt's rules look them up: by kind, namespace and name.

The rules are plain functions that cannot wait. So what they look up for a VM is read before, by
`Lookups.prefetch_named`, and `Lookups.get` is what they look it up with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from webhook.errors import Unavailable
from webhook.facts import Facts, Key, ListKey, ObjectKey
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import find, revisions
from webhook.kubevirt.instancetype.find import MATCHERS, Matcher, SpecReference
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.releases.capabilities import OLDEST
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.resources import PRESETS, REVISIONS, UNSTRUCTURED
from webhook.kubevirt.vm import size
from webhook.policies.common.required_facts import read, read_configuration, require


class UnsupportedReleaseError(Exception):
    """The rules for instancetypes of the cluster's KubeVirt are not known, since it is too old.

    Args:
        release: the release of the cluster's KubeVirt.
    """

    def __init__(self, release: Release) -> None:
        super().__init__(f"KubeVirt {release} is older than {OLDEST}, the first release whose rules are known")


class Lookups:
    """What KubeVirt's rules look up, from one review's facts.

    Instancetypes, preferences and their revisions are read. Volumes and their sources never are: the server has no
    permission to read them, since what it found would show a user the content of other users' namespaces. A
    ControllerRevision with other content counts as absent: the answer must not depend on an object that its reader may
    not read.

    Args:
        facts: the review's facts.
        namespace: of the VM or VMI.

    Attributes:
        passed_over: whether a rule looked up an object that the server does not read, and got the answer that it does
            not exist.
    """

    def __init__(self, facts: Facts, namespace: str) -> None:
        self._facts = facts
        self.namespace: Final = namespace
        self._decoded: Final[dict[ObjectKey[Unstructured], Unstructured | Unavailable | None]] = {}
        self._objects: Final[dict[tuple[str, str, str], Json | None]] = {}
        self.passed_over = False

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """An object that has been read, not to be changed; None where there is none.

        Raises:
            Unreadable: it could not be read.
            LookupError: nobody has had it read: a bug.
        """
        resource = UNSTRUCTURED.get(kind)
        if resource is None:
            self.passed_over = True
            return None
        if not name:
            # A matcher that is still to be inferred names nothing yet.
            return None
        key = kind, namespace if resource.namespaced else "", name
        # Every rule asks for what the VM names.
        if key in self._objects:
            return self._objects[key]
        stored = require(self._decoded[ObjectKey(resource, *key[1:])], f"{kind} {name}")
        plain = None if stored is None else stored.plain()
        if stored and plain and kind == "ControllerRevision":
            data = plain.get("data")
            data = data if isinstance(data, dict) else {}
            if not revisions.is_captured(stored.meta, data.get("kind"), data.get("apiVersion")):
                plain = None
        self._objects[key] = plain
        return plain

    async def prefetch(self, references: Iterable[SpecReference], *, presets: bool = False) -> None:
        """Have objects, and the namespace's presets, read at the same time, so that rules can look them up."""
        resources = ((UNSTRUCTURED[reference.kind], reference.name) for reference in references)
        keys = [ObjectKey(each, self.namespace if each.namespaced else "", name) for each, name in resources]
        of_namespace: list[Key[Any]] = [ListKey(PRESETS, self.namespace)] if presets else []
        await self._facts.prefetch(*keys, *of_namespace)
        for key in keys:
            fact = await self._facts.get(key)
            self._decoded[key] = fact

    async def prefetch_named(self, vm: Json) -> None:
        """Have everything read that KubeVirt's rules look up for a VM, which is as `share_vm` returns it.

        Raises:
            Unreadable, InputError: the revision of an object that the VM has named cannot be read.
        """
        await self.prefetch(named_references(vm))
        await self.prefetch(self._live_references(vm))

    async def read_one(self, kind: str, name: str) -> Json | None:
        """An object, not to be changed; None where there is none. `Unreadable` where it cannot be read."""
        await self.prefetch([SpecReference(kind, name)] if name else [])
        return self.get(kind, self.namespace, name)

    def uncached(self) -> Lookups:
        """Lookups that get objects from the API server itself, not from informers."""
        return Lookups(self._facts.uncached(), self.namespace)

    async def sizing_preset(self, metadata: Any) -> tuple[str, str] | None:
        """The VirtualMachineInstancePreset that gives a VMI its size, by name, with the field; None where none does.

        A VM that gets no size because of a preset that no longer exists would not start, so what a store says of it is
        read again. The VMI's metadata is plain JSON.
        """
        sizing = None
        for facts in (self._facts, self._facts.uncached()):
            presets = await self._presets(facts)
            sizing = size.sizing_preset((stored.plain() for stored in presets), metadata)
            if sizing is None:
                break
        return sizing

    async def preset_memory(self, metadata: Any) -> bool:
        """Whether a VirtualMachineInstancePreset gives a VMI its memory. The VMI's metadata is plain JSON.

        Raises:
            Unreadable: the namespace's presets cannot be read.
        """
        presets = await self._presets(self._facts)
        return size.gives_memory((stored.plain() for stored in presets), metadata)

    async def _presets(self, facts: Facts) -> tuple[Unstructured, ...]:
        key = ListKey(PRESETS, self.namespace)
        return await read(facts, key, "the namespace's VirtualMachineInstancePresets") or ()

    async def configuration(self) -> ClusterConfig:
        """The cluster's settings of KubeVirt, with the rules of its release; KubeVirt's defaults where there is none.

        Raises:
            Unreadable: they cannot be read.
            UnsupportedReleaseError: the cluster's KubeVirt is too old.
        """
        configuration = await read_configuration(self._facts) or DEFAULTS
        if not configuration.rules.release.is_supported:
            raise UnsupportedReleaseError(configuration.rules.release)
        return configuration

    def _live_references(self, vm: Json) -> Iterator[SpecReference]:
        """The live objects that count beside a captured revision, which is of another object or another kind."""
        for matcher in MATCHERS:
            vm_matcher, captured = vm["spec"].get(matcher.field), vm["status"].get(matcher.reference, {})
            revision = matcher.captured_name(vm)
            # One without a name is still to be inferred: no live object counts, so the revision is not looked at.
            if not vm_matcher or not vm_matcher.get("name") or not revision or "revisionName" in vm_matcher:
                continue
            stored, kind = self.get(REVISIONS.kind, self.namespace, revision), captured.get("kind")
            is_of_another = stored is not None and revisions.label(stored) != vm_matcher.get("name", "")
            if is_of_another or vm_matcher.get("kind", kind) != kind:
                yield from _live_reference(matcher, vm_matcher)


def named_references(vm: Json) -> Iterator[SpecReference]:
    """What a VM names, as KubeVirt looks it up first: a revision where the VM has pinned one."""
    for matcher in MATCHERS:
        vm_matcher = vm["spec"].get(matcher.field)
        if vm_matcher is None:
            continue
        if revision := vm_matcher.get("revisionName") or matcher.captured_name(vm):
            yield SpecReference(REVISIONS.kind, revision)
        else:
            yield from _live_reference(matcher, vm_matcher)


def _live_reference(matcher: Matcher, vm_matcher: Json) -> Iterator[SpecReference]:
    """The object that a matcher names; none where it is still to be inferred, or its kind is unknown."""
    if vm_matcher.get("name"):
        with suppress(Rejection):
            yield find.of_matcher(matcher, vm_matcher)
