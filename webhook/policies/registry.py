"""All policies. What is served, registered and explained of one comes and goes by its line in `POLICIES`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook.policies.defaults.policy import POLICY as DEFAULTS
from webhook.policies.eviction.policy import POLICY as EVICTION
from webhook.policies.groups.policy import POLICY as GROUPS
from webhook.policies.headroom.policy import POLICY as HEADROOM
from webhook.policies.instancetypes.policy import POLICY as INSTANCETYPES
from webhook.policies.migration.policy import POLICY as MIGRATION
from webhook.policies.naming.policy import POLICY as NAMING
from webhook.policies.preemption.policy import POLICY as PREEMPTION
from webhook.policies.scheduling.policy import POLICY as SCHEDULING
from webhook.policies.sizes.policy import POLICY as SIZES
from webhook.policy import AnyPolicy, Endpoint

# In the order in which they are shown and, but for what a policy `follows`, called.
POLICIES: Final[tuple[AnyPolicy, ...]] = (
    SCHEDULING,
    INSTANCETYPES,
    MIGRATION,
    EVICTION,
    NAMING,
    SIZES,
    DEFAULTS,
    GROUPS,
    PREEMPTION,
    HEADROOM,
)
BY_NAME: Final = {policy.name: policy for policy in POLICIES}


def endpoints_of(policies: Iterable[AnyPolicy]) -> tuple[Endpoint, ...]:
    """The policies' endpoints in the order in which the API server calls them.

    First what mutates, then what validates; the API server calls the latter at once, so it is sorted.
    """
    listed = [endpoint for policy in _in_order_of_calls(policies) for endpoint in policy.endpoints]
    mutating = (each for each in listed if each.verb == "mutate")
    validating = (each for each in listed if each.verb == "validate")
    return (*mutating, *sorted(validating, key=lambda each: (each.resource, each.policy, each.stage)))


def _in_order_of_calls(policies: Iterable[AnyPolicy]) -> Iterable[AnyPolicy]:
    """The policies, each after those that it follows."""
    left = list(policies)
    while left:
        names = {policy.name for policy in left}
        first = next(policy for policy in left if not names.intersection(policy.follows))
        left.remove(first)
        yield first


ENDPOINTS: Final = endpoints_of(POLICIES)
BY_PATH: Final = {endpoint.path: endpoint for endpoint in ENDPOINTS}
