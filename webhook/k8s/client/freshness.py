"""What an informer knows of its resource at a moment: its store is `Fresh` or `Stale`, or the resource is `Unknown`.

`webhook.k8s.client.reflector.Reflector.freshness` gives the value. Decisions, readiness and the gauge of staleness read
it, so they cannot disagree. Each of the three has:

* ``age``: monotonic seconds since the store was last proved up to date; what has happened since may not be in it.
* ``problem``: why the store is not being kept in step at the moment; None if it is.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import msgspec

from webhook.errors import Unavailable


class Fresh(msgspec.Struct, frozen=True):
    """The store was proved up to date less than `webhook.k8s.client.reflector.CURRENT_SECONDS` ago, so it decides.

    It stays fresh until then where its watch is interrupted, which ``problem`` says. See the module for the attributes.
    """

    age: float
    problem: Unavailable | None = None


class Stale(msgspec.Struct, frozen=True):
    """The resource was listed once, and what the store has of it doesn't decide any more.

    See the module for the other attributes.

    Attributes:
        why: ``age``: it was proved up to date too long ago. ``restore``: etcd has been restored from an older copy, and
            the store may be of the future that etcd has lost; its age is infinite then.
    """

    why: Literal["age", "restore"]
    age: float
    problem: Unavailable | None = None


class Unknown(msgspec.Struct, frozen=True):
    """The resource has not been listed yet. Once it has, it is never `Unknown` again.

    See the module for the attributes.
    """

    age: ClassVar[float] = math.inf
    problem: Unavailable | None = None


Freshness = Fresh | Stale | Unknown
