"""Which mode a policy has in a namespace, and the annotations by which the namespace sets the policy up.

The API server calls the webhooks only where a namespaceSelector matched. The labels are evaluated again here, for two
reasons: an informer, on either side, may lag behind a relabeled namespace, and a configuration with a selector too
wide must not opt any namespace in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import Unavailable
from webhook.facts import Facts, KubeVirtKey, NamespaceKey
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.config import KubeVirtInstall
from webhook.names import Mode, PolicyName, Stage
from webhook.settings.model import Settings

_OBSERVED: Final = (names.WARN, names.AUDIT)
# Of each of them some hundred bytes, beside the namespace, which is in the store anyway.
_MAX_CACHED: Final = 10_000
_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}


class Scope(msgspec.Struct, frozen=True):
    """How much a policy may do with one request.

    Attributes:
        mode: the mode; for ``off`` the policy does not run.
        annotations: the namespace's, of which a policy reads its own (`PolicySettings.with_annotations`).
        reason: why the mode is ``off``; else None.
    """

    mode: Mode
    annotations: Mapping[str, str] = _NO_ANNOTATIONS
    reason: Reason | None = None


def _off(reason: Reason) -> Scope:
    return Scope(names.OFF, reason=reason)


class _CachedScope(msgspec.Struct, frozen=True):
    """A scope, and what it follows from."""

    namespace: Namespace
    install: KubeVirtInstall | None
    settings: Settings
    scope: Scope
    section: Any


class Scopes:
    """Scopes that are kept as long as the facts behind them do not change."""

    def __init__(self) -> None:
        self._cache: Final[dict[tuple[PolicyName, Stage, str], _CachedScope]] = {}

    async def resolve(
        self, policy: PolicyName, stage: Stage, request: Request[Any], facts: Facts, settings: Settings
    ) -> tuple[Scope | Unavailable, Any]:
        """The scope of a request that arrived at a policy's endpoint of a stage, and the policy's section for it.

        The scope is `Unavailable` where its namespace is.
        """
        if isinstance(request.object, Namespace):
            return await _of_object(policy, stage, request.object, facts, settings)
        name = request.namespace or ""
        cached = self._cache.get((policy, stage, name))
        if (
            cached
            and cached.settings is settings
            and cached.install is await facts.get(KubeVirtKey())
            and cached.namespace is await facts.get(NamespaceKey(name))
        ):
            return cached.scope, cached.section
        section = settings.policy(policy)
        scope = await of_namespace(policy, stage, name, facts, section.cluster_wide, settings.every_excluded_namespace)
        if isinstance(scope, Unavailable) or scope.mode == names.OFF:
            return scope, section
        section = section.with_annotations(scope.annotations)
        install = await facts.get(KubeVirtKey())
        namespace = await facts.get(NamespaceKey(name))
        if isinstance(namespace, Namespace) and (install is None or isinstance(install, KubeVirtInstall)):
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[policy, stage, name] = _CachedScope(namespace, install, settings, scope, section)
        return scope, section


async def _of_object(
    policy: PolicyName, stage: Stage, namespace: Namespace, facts: Facts, settings: Settings
) -> tuple[Scope | Unavailable, Any]:
    """The scope of a request that writes a namespace: what it will say, as for the API server's namespaceSelector."""
    section = settings.policy(policy)
    name = namespace.meta.name or ""
    if await _is_excluded(name, facts, settings.every_excluded_namespace):
        return _off(common.excluded_namespace(name)), section
    scope = _scope_of(namespace, policy, stage, section.cluster_wide)
    return scope, section.with_annotations(namespace.meta.annotations or _NO_ANNOTATIONS)


async def of_namespace(
    policy: PolicyName, stage: Stage, namespace: str, facts: Facts, cluster_wide: bool, excluded: frozenset[str]
) -> Scope | Unavailable:
    """The scope of a policy's endpoint of a stage in a namespace, or why the namespace cannot be read.

    An ``observe`` endpoint can never patch or deny, an ``enforce`` endpoint only where the namespace says so.

    Args:
        policy: of the endpoint.
        stage: of the endpoint.
        namespace: the name; empty for requests without a namespace, for which every policy is ``off``.
        facts: of the review.
        cluster_wide: namespaces without the policy's label count as ``enforce``.
        excluded: namespaces that are always skipped; those in which KubeVirt runs are added where they are known.
    """
    if not namespace:
        return _off(common.no_namespace)
    if await _is_excluded(namespace, facts, excluded):
        return _off(common.excluded_namespace(namespace))
    answer = await facts.get(NamespaceKey(namespace))
    scope = _scope_of(answer, policy, stage, cluster_wide)
    if isinstance(scope, Scope) and scope.mode == names.OFF:
        # One store is old: the API server's had the namespace opted in. Read it from the API server itself. What
        # no store has, was read from the API server already: a name that is made up costs one GET.
        answer = await facts.get(NamespaceKey(namespace, uncached=True))
        scope = _scope_of(answer, policy, stage, cluster_wide)
    return scope


async def enforces(
    policy: PolicyName, namespace: Namespace | None, facts: Facts, cluster_wide: bool, excluded: frozenset[str]
) -> bool:
    """Whether a policy is in mode ``enforce`` in a namespace, as it was read; for forecasts, which change nothing."""
    name = (namespace.meta.name if namespace else None) or ""
    if namespace is None or await _is_excluded(name, facts, excluded):
        return False
    scope = _scope_of(namespace, policy, "enforce", cluster_wide)
    return isinstance(scope, Scope) and scope.mode == names.ENFORCE


async def _is_excluded(namespace: str, facts: Facts, excluded: frozenset[str]) -> bool:
    if namespace in excluded:
        return True
    install = await facts.get(KubeVirtKey())
    return isinstance(install, KubeVirtInstall) and namespace in install.namespaces


def _scope_of(
    answer: Namespace | Unavailable | None, policy: PolicyName, stage: Stage, cluster_wide: bool
) -> Scope | Unavailable:
    if answer is None:
        return Unavailable("it does not exist")
    if isinstance(answer, Unavailable):
        return answer
    label = answer.meta.label(names.policy_label(policy))
    if label is None:
        if not cluster_wide:
            return _off(common.not_opted_in(policy))
        label = names.ENFORCE
    annotations = answer.meta.annotations or _NO_ANNOTATIONS
    if label == names.ENFORCE:
        return Scope(names.ENFORCE if stage == "enforce" else names.AUDIT, annotations)
    if label in _OBSERVED:
        return Scope(label, annotations)  # type: ignore[arg-type]
    if label == names.OFF:
        return _off(common.switched_off(policy))
    return _off(common.unknown_mode(policy, label))
