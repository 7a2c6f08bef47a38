from __future__ import annotations

import msgspec
import pytest

from tests.doctor.world import lines
from tests.golden_files import Golden
from webhook.errors import Unavailable
from webhook.findings import check, unreadable
from webhook.k8s.client.api import Forbidden


@pytest.mark.parametrize(
    "why", [Forbidden("refused"), Unavailable("no answer")], ids=lambda why: type(why).__name__.lower()
)
def test_what_could_not_be_read(why: Unavailable, golden: Golden) -> None:
    finding = msgspec.structs.replace(unreadable("images", why), check="nodes")
    assert (finding.verdict, finding.code, finding.found) == ("unknown", "unreadable", why.why)
    golden(lines([finding]))


def test_the_name_of_a_check_leaves_room_for_what_is_found() -> None:
    check("certificates")
    with pytest.raises(ValueError, match="required-labels has more than 12"):
        check("required-labels")
