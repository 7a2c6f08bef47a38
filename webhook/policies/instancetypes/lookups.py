"""Facts as KubeVirt's rules ask for them: by kind, namespace and name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webhook.facts import ConfigurationKey, Facts, ListKey, ObjectKey
from webhook.k8s.views import Unstructured
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import provenance
from webhook.kubevirt.instancetype.reference import Reference
from webhook.kubevirt.resources import PRESETS, UNSTRUCTURED
from webhook.kubevirt.rules import Rules
from webhook.kubevirt.vm import preset
from webhook.policies.common.required_facts import read
from webhook.releases.release import Release
from webhook.releases.version import OLDEST


class UnsupportedReleaseError(Exception):
    """The rules for instancetypes of the cluster's KubeVirt are not known, since it is too old."""

    def __init__(self, release: Release) -> None:
        super().__init__(f"KubeVirt {release} is older than {OLDEST}, the first release whose rules are known")


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
        resource = UNSTRUCTURED.get(kind)
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

    def get_fresh(self, kind: str, namespace: str, name: str) -> Json | None:
        """The same from the API server itself; raises as `get`."""
        return Lookups(self._facts.fresh()).get(kind, namespace, name)

    def expect(self, references: Iterable[Reference], namespace: str, *, presets: bool = False) -> None:
        """Say beforehand what will be looked up, so that all of it is read at the same time.

        Args:
            presets: those of the namespace too.

        Raises:
            NotRead: it has not been read yet; for the Reviewer.
        """
        resources = ((UNSTRUCTURED[found.kind], found.name) for found in references)
        keys = [ObjectKey(one, namespace if one.namespaced else "", name) for one, name in resources]
        self._facts.need(*keys, *([ListKey(PRESETS, namespace)] if presets else []))

    def sizing_preset(self, namespace: str, metadata: Any) -> tuple[str, str] | None:
        """As `webhook.kubevirt.vm.preset.sizing_preset`, of a namespace. Raises as `get`.

        A VM that gets no size because of a preset which is gone would not start, so what a copy says of it is read
        again.
        """
        found = None
        for facts in (self._facts, self._facts.fresh()):
            presets = read(facts, ListKey(PRESETS, namespace), "the namespace's VirtualMachineInstancePresets")
            found = preset.sizing_preset((one.plain() for one in presets or ()), metadata)
            if found is None:
                break
        return found

    def configuration(self) -> ClusterConfig:
        """The cluster's; KubeVirt's own defaults where there is no KubeVirt.

        Raises:
            UnsupportedReleaseError: the cluster's KubeVirt is too old.
            Unreadable, NotRead: as `get`.
        """
        found = read(self._facts, ConfigurationKey(), "KubeVirt's configuration") or DEFAULTS
        if not found.rules.release.is_supported:
            raise UnsupportedReleaseError(found.rules.release)
        return found

    @property
    def rules(self) -> Rules:
        """Those of the cluster's release of KubeVirt. Raises as `configuration`."""
        return self.configuration().rules


def _is_captured(revision: Unstructured, plain: Json) -> bool:
    data = plain.get("data")
    return isinstance(data, dict) and provenance.is_captured(revision.meta, data.get("kind"), data.get("apiVersion"))
