"""The columns of the table: which scheduler places the pods, and what the pods ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.placement import profiles
from bench.placement.constraint import Constraint
from webhook import names


@dataclass(frozen=True, slots=True)
class PlacementCase:
    """One way to place launcher pods.

    Attributes:
        key: its name on the command line and in the JSON.
        title: for people.
        profile: the scheduler that places the pods.
        max_skew: the constraint's; the larger it is, the less the constraint weighs beside other scores.
        chosen: kubevirt-webhook chooses the profile, though it writes no constraint.
    """

    key: str
    title: str
    profile: str = profiles.STOCK
    constraint: Constraint = Constraint.NONE
    chosen: bool = False
    max_skew: int = 1

    @property
    def spread(self) -> str:
        """What kubevirt-webhook writes into the pods, as a value of ``scheduling.spread``."""
        return self.constraint.spread if self.max_skew == 1 else names.OFF

    @property
    def through_webhook(self) -> bool:
        """Whether the API server calls kubevirt-webhook for the pods; it then chooses the shipped profile, too."""
        return self.chosen or self.spread != names.OFF


DEFAULT: Final = PlacementCase("default", "default-scheduler")
PROFILE: Final = PlacementCase("profile", "profile", profiles.SHIPPED)
CONSTRAINT: Final = PlacementCase("constraint", "constraint", constraint=Constraint.HOSTNAME)
BOTH: Final = PlacementCase("both", "profile and constraint", profiles.SHIPPED, Constraint.HOSTNAME)
CASES: Final = (
    DEFAULT,
    PROFILE,
    CONSTRAINT,
    BOTH,
    PlacementCase("webhook", "profile, through kubevirt-webhook", profiles.SHIPPED, chosen=True),
    *(
        PlacementCase(
            f"{base.key}-skew-{skew}", f"{base.title}, maxSkew {skew}", base.profile, base.constraint, max_skew=skew
        )
        for base in (CONSTRAINT, BOTH)
        for skew in (10, 50, 200)
    ),
    PlacementCase("zone", "zone constraint", constraint=Constraint.ZONE),
    PlacementCase("zone-hostname", "zone and hostname constraints", constraint=Constraint.BOTH),
    PlacementCase("anti-affinity", "preferred anti-affinity", constraint=Constraint.ANTI_AFFINITY),
    PlacementCase("profile-anti-affinity", "profile and anti-affinity", profiles.SHIPPED, Constraint.ANTI_AFFINITY),
    *(
        PlacementCase(
            f"{profile['schedulerName']}{suffix}",
            f"candidate {profile['schedulerName']}{suffix}",
            profile["schedulerName"],
            constraint,
        )
        for profile in profiles.candidates()
        for suffix, constraint in (
            ("", Constraint.NONE),
            ("+constraint", Constraint.HOSTNAME),
            ("+anti-affinity", Constraint.ANTI_AFFINITY),
        )
    ),
)
MAIN: Final = (DEFAULT, PROFILE, CONSTRAINT, BOTH)
