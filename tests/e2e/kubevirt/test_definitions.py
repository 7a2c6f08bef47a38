"""The definitions that a release installs say of its fields what the tables say."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.e2e.support.objects import CRDS
from webhook.kubevirt.definitions import NAMES, Definition, fields_of
from webhook.kubevirt.releases.release import release_of

from .control_plane import RunningKubeVirt

pytestmark = pytest.mark.kubevirt


def test_the_tables_say_what_the_installed_definitions_say(real: RunningKubeVirt) -> None:
    found = [real.plane.admin.get(CRDS, name) for name in NAMES.values()]
    said = fields_of(msgspec.convert(json.loads(json.dumps(each)), Definition) for each in found)
    assert said

    installed = release_of(real.release.version, said)
    assert {kind: installed.unknown_fields(kind) for kind in NAMES} == {
        kind: real.release.unknown_fields(kind) for kind in NAMES
    }
    assert said.version
    assert said.version.line == real.release.version.line
