"""All policies. What is served, registered and explained of one comes and goes by its line in `POLICIES`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook.policies.eviction.policy import POLICY as EVICTION
from webhook.policies.instancetypes.policy import POLICY as INSTANCETYPES
from webhook.policies.migration.policy import POLICY as MIGRATION
from webhook.policies.scheduling.policy import POLICY as SCHEDULING
from webhook.policy import AnyPolicy, Endpoint

# In the order of the configurations' entries: instancetypes before scheduling, which must know what a VM's sets.
POLICIES: Final[tuple[AnyPolicy, ...]] = (
    INSTANCETYPES,
    SCHEDULING,
    MIGRATION,
    EVICTION,
)


def endpoints_of(policies: Iterable[AnyPolicy]) -> tuple[Endpoint, ...]:
    """The policies' endpoints in the order in which the API server calls them.

    First what mutates, then what validates; the API server calls the latter at once, so it is sorted.
    """
    listed = [endpoint for policy in policies for endpoint in policy.endpoints]
    mutating = (each for each in listed if each.verb == "mutate")
    validating = (each for each in listed if each.verb == "validate")
    return (*mutating, *sorted(validating, key=lambda each: (each.resource, each.policy, each.stage)))


ENDPOINTS: Final = endpoints_of(POLICIES)
BY_PATH: Final = {endpoint.path: endpoint for endpoint in ENDPOINTS}
