"""Facts as KubeVirt's rules ask for them: by kind, namespace and name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

from webhook.facts import Facts, ListKey, ObjectKey
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import revisions
from webhook.kubevirt.instancetype.find import SpecReference
from webhook.kubevirt.releases.capabilities import OLDEST
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.resources import PRESETS, UNSTRUCTURED
from webhook.kubevirt.rules import Rules
from webhook.kubevirt.vm import size
from webhook.policies.common.required_facts import read, read_configuration


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
    not read. What cannot be read now raises `Unreadable`, and what has not been read yet `NotRead`.

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
        self._objects: Final[dict[tuple[str, str, str], Json | None]] = {}
        self.passed_over = False

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """An object, not to be changed; None where there is none."""
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
        stored = read(self._facts, ObjectKey(resource, *key[1:]), f"{kind} {name}")
        plain = None if stored is None else stored.plain()
        if stored and plain and kind == "ControllerRevision":
            data = plain.get("data")
            data = data if isinstance(data, dict) else {}
            if not revisions.is_captured(stored.meta, data.get("kind"), data.get("apiVersion")):
                plain = None
        self._objects[key] = plain
        return plain

    def fresh(self) -> Lookups:
        """Lookups that get objects from the API server itself, not from informers."""
        return Lookups(self._facts.fresh(), self.namespace)

    def expect(self, references: Iterable[SpecReference], *, presets: bool = False) -> None:
        """Declare which objects, and whether presets, will be looked up, so that all are read concurrently."""
        resources = ((UNSTRUCTURED[reference.kind], reference.name) for reference in references)
        keys = [ObjectKey(each, self.namespace if each.namespaced else "", name) for each, name in resources]
        self._facts.need(*keys, *([ListKey(PRESETS, self.namespace)] if presets else []))

    def sizing_preset(self, metadata: Any) -> tuple[str, str] | None:
        """The VirtualMachineInstancePreset that gives a VMI its size, by name, with the field; None where none does.

        A VM that gets no size because of a preset that no longer exists would not start, so what a store says of it is
        read again. The VMI's metadata is plain JSON.
        """
        sizing = None
        for facts in (self._facts, self._facts.fresh()):
            presets = read(facts, ListKey(PRESETS, self.namespace), "the namespace's VirtualMachineInstancePresets")
            sizing = size.sizing_preset((stored.plain() for stored in presets or ()), metadata)
            if sizing is None:
                break
        return sizing

    @cached_property
    def configuration(self) -> ClusterConfig:
        """The cluster's settings of KubeVirt; KubeVirt's own defaults where there is no KubeVirt.

        Raises:
            UnsupportedReleaseError: the cluster's KubeVirt is too old.
        """
        configuration = read_configuration(self._facts) or DEFAULTS
        if not configuration.rules.release.is_supported:
            raise UnsupportedReleaseError(configuration.rules.release)
        return configuration

    @property
    def rules(self) -> Rules:
        """The rules of the cluster's release of KubeVirt; an `UnsupportedReleaseError` where that is too old."""
        return self.configuration.rules
