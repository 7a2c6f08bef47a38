from __future__ import annotations

import msgspec
import pytest

from tests.doctor.world import lines
from tests.golden_files import Golden
from webhook.errors import Unavailable
from webhook.findings import unreadable
from webhook.k8s.client.api import Forbidden


@pytest.mark.parametrize(
    "why", [Forbidden("refused"), Unavailable("no answer")], ids=lambda why: type(why).__name__.lower()
)
def test_what_could_not_be_read(why: Unavailable, golden: Golden) -> None:
    finding = msgspec.structs.replace(unreadable("images", why), check="nodes")
    assert (finding.verdict, finding.code, finding.found) == ("unknown", "unreadable", why.why)
    golden(lines([finding]))
