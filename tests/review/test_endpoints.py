from __future__ import annotations

import msgspec

from tests import builders
from webhook.review.endpoints import BY_PATH, ENDPOINTS
from webhook.settings.model import InstancetypeSettings, MigrationSettings, Settings


def test_paths_are_unique_and_say_what_they_are() -> None:
    assert len(BY_PATH) == len(ENDPOINTS)
    assert set(BY_PATH) == {
        f"/{place}/{stage}"
        for place in (
            *("mutate/scheduling/pods", "mutate/migration/pods", "mutate/eviction/pods"),
            *("mutate/scheduling/virtualmachines", "mutate/scheduling/virtualmachineinstances"),
            *("mutate/instancetypes/virtualmachines", "mutate/instancetypes/virtualmachineinstances"),
            "validate/instancetypes/virtualmachines",
            *(f"{verb}/migration/virtualmachineinstancemigrations" for verb in ("mutate", "validate")),
        )
        for stage in ("enforce", "observe")
    }


def test_vms_get_their_instancetype_before_their_scheduler() -> None:
    policies = [
        e.policy for e in ENDPOINTS if (e.resource, e.verb, e.stage) == ("virtualmachines", "mutate", "enforce")
    ]
    assert policies == ["instancetypes", "scheduling"]


def test_faults_of_ours_stand_in_the_way_where_an_admin_wants_it_only() -> None:
    usual = builders.settings()
    strict, lax = (
        msgspec.structs.replace(
            usual,
            instancetypes=InstancetypeSettings(failure_policy=policy),
            migration=MigrationSettings(failure_policy=policy),
        )
        for policy in ("Fail", "Ignore")
    )

    def refusing(settings: Settings) -> set[str]:
        return {endpoint.path for endpoint in ENDPOINTS if endpoint.fails_closed(settings)}

    migrations = {f"/validate/migration/virtualmachineinstancemigrations/{s}" for s in ("enforce", "observe")}
    vms = {f"/validate/instancetypes/virtualmachines/{s}" for s in ("enforce", "observe")}
    # It matches only migrations with an added selector, which no drain has.
    assert (refusing(usual), refusing(strict), refusing(lax)) == (migrations, migrations | vms, set())
