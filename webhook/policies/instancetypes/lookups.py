"""Facts as KubeVirt's rules ask for them: by kind, namespace and name."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.facts import ConfigurationKey, Facts, ListKey, ObjectKey
from webhook.kubevirt import provenance
from webhook.kubevirt.configuration import DEFAULTS, Configuration
from webhook.kubevirt.reference import Reference
from webhook.kubevirt.shape import Json
from webhook.objects import PRESETS, WHOLE, Whole
from webhook.policies.unreadable import read


class Lookups:
    """What KubeVirt's rules look up, from one review's facts.

    Instancetypes, preferences and their revisions are read; volumes and their sources never are: the server has no
    right to them, since what it found would tell a user about namespaces that aren't theirs. A ControllerRevision of
    something else is not there: the answer must not depend on an object that its reader may not read.

    Attributes:
        passed_over: a rule asked for something that the server doesn't read, and was told that it isn't there.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.passed_over = False

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """An object, not to be changed; None where there is none.

        Raises:
            Unreadable: it can't be read now.
            NotRead: it has not been read yet; for the Reviewer.
        """
        resource = WHOLE.get(kind)
        if resource is None:
            self.passed_over = True
            return None
        if not name:
            # A matcher that is still to be inferred names nothing yet.
            return None
        key = ObjectKey(resource, namespace if resource.namespaced else "", name)
        found = read(self._facts, key, f"{kind} {name}")
        if found is None:
            return None
        plain = found.plain()
        return plain if kind != "ControllerRevision" or _is_captured(found, plain) else None

    def expect(self, references: Iterable[Reference], namespace: str, *, presets: bool = False) -> None:
        """Say beforehand what will be looked up, so that all of it is read at the same time.

        Args:
            presets: those of the namespace too.

        Raises:
            NotRead: it has not been read yet; for the Reviewer.
        """
        resources = ((WHOLE[found.kind], found.name) for found in references)
        keys = [ObjectKey(one, namespace if one.namespaced else "", name) for one, name in resources]
        self._facts.need(*keys, *([ListKey(PRESETS, namespace)] if presets else []))

    def presets(self, namespace: str) -> list[Json]:
        """The VirtualMachineInstancePresets of a namespace, not to be changed; raises as `get`."""
        found = read(self._facts, ListKey(PRESETS, namespace), "the namespace's VirtualMachineInstancePresets")
        return [preset.plain() for preset in found or ()]

    def configuration(self) -> Configuration:
        """The cluster's; KubeVirt's own defaults where there is no KubeVirt. Raises as `get`."""
        return read(self._facts, ConfigurationKey(), "KubeVirt's configuration") or DEFAULTS


def _is_captured(revision: Whole, plain: Json) -> bool:
    data = plain.get("data")
    return isinstance(data, dict) and provenance.is_captured(revision.meta, data.get("kind"), data.get("apiVersion"))
