"""No object is denied, and no user is warned, because of a watched copy: it may be a moment old.

A copy lets pass what KubeVirt checks again. A user who applies an instancetype and a VM of it together must not read
that the VM does not fit the instancetype of a second ago, so before such an answer all that came from copies is read
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.admission.decision import Decision
from webhook.admission.wire import Request
from webhook.facts import Facts, Key, uncached_key
from webhook.k8s.views import Object

# A policy says what mode enforce would do; it has no clock, no network and no memory. Its settings are its policy's
# section of the snapshot, with the namespace's parameters worked in.
Handler = Callable[[Any, Request[Any], Facts, Any], Decision]


def with_confirmation(handler: Handler) -> Handler:
    """A policy that evaluates again, with facts that are read anew, before it denies or warns."""

    def confirm(view: Any, request: Request[Any], facts: Facts, settings: Any) -> Decision:
        decision: Decision = handler(view, request, facts, settings)
        if not (decision.denial or decision.warnings):
            return decision
        copied: list[Key[Any]] = [*facts.copied_keys()]
        if not copied:
            return decision
        anew = [uncached_key(key) for key in copied]
        facts.need(*anew)
        pairs = zip(copied, anew, strict=True)
        if all(_content(facts.get(old)) == _content(facts.get(new)) for old, new in pairs):
            return decision
        return handler(view, request, facts.fresh(), settings)

    return confirm


def _content(fact: object) -> object:
    """What a decision rests on, of an object or a list: copies have no metadata but the name."""
    if isinstance(fact, tuple):
        return [(item.meta.name, _content(item)) for item in fact]
    if isinstance(fact, Object) and getattr(fact, "data", None) is None:
        return getattr(fact, "spec", None)
    return fact
