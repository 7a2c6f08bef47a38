"""Versions beside each other: configurations, settings and labels of earlier versions with this one; later settings.

`tests/skew/VERSION` holds what each released version installed, and its labels; `make release` adds a directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.reference import labels
from webhook import __version__
from webhook.errors import InputError
from webhook.install.registration import NOT_YET, during_rollout
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.registry import ENDPOINTS
from webhook.settings_file import SettingsFile, load

VERSIONS = sorted(each for each in Path(__file__).parent.iterdir() if (each / "webhooks.yaml").exists())
BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}
by_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda each: each.name)


def configurations(version: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((version / "webhooks.yaml").read_text()))


def test_the_version_that_is_in_the_tree_is_recorded() -> None:
    assert __version__ in {version.name for version in VERSIONS}


@by_version
def test_this_version_serves_what_configurations_of_another_one_call(version: Path) -> None:
    for entry in (entry for configuration in configurations(version) for entry in configuration["webhooks"]):
        endpoint = BY_PATH[entry["clientConfig"]["service"]["path"]]
        (rule,) = entry["rules"]
        resource = f"{endpoint.resource}/{endpoint.sub_resource}" if endpoint.sub_resource else endpoint.resource
        assert rule["resources"] == [resource]
        assert rule["apiGroups"] == [endpoint.group]
        assert rule["apiVersions"] == [endpoint.version]
        assert set(rule["operations"]) <= set(endpoint.operations)


@by_version
def test_this_version_accepts_every_setting_of_another_one(version: Path) -> None:
    load(version / "settings.yaml")


@by_version
def test_this_version_has_every_label_and_annotation_of_another_one(version: Path) -> None:
    file = version / labels.RECORD
    now = yaml.safe_load(labels.recorded())
    gone = [f"{key} of {where}" for where, keys in yaml.safe_load(file.read_text()).items() for key in keys]

    gone = [each for each in gone if each not in {f"{key} of {where}" for where, keys in now.items() for key in keys}]
    assert gone == [], (
        f"hack/reference/labels.py lacks what {version.name} had; where only the words for the objects have changed, "
        f"change them in tests/skew/{version.name}/{labels.RECORD}, too"
    )


@by_version
def test_an_upgrade_calls_nothing_that_the_other_version_does_not_serve(version: Path) -> None:
    for wanted in configurations(version):
        live = {**wanted, "webhooks": wanted["webhooks"][:-1]}

        *kept, added = during_rollout(wanted, live)["webhooks"]

        assert kept == live["webhooks"]
        assert added["matchConditions"] == [NOT_YET]


async def test_a_running_replica_keeps_its_settings_beside_a_later_one_and_a_starting_one_names_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("migration: {collision: ignore}\n")
    told: list[InputError] = []
    followed = SettingsFile(file, on_rejected=told.append)

    file.write_text("migration: {collision: warn, settingOfALaterVersion: 1}\n")
    await followed.poll()
    await followed.poll()

    assert followed.current.of(MigrationSettings).collision == "ignore"
    assert ["settingOfALaterVersion" in str(one) for one in told] == [True]
    with pytest.raises(InputError, match="settingOfALaterVersion"):
        load(file)
