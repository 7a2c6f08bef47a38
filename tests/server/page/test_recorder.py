from __future__ import annotations

import pytest

from tests.server.page.samples import Sunk, record
from webhook.server.page.recorder import DecisionRecorder


def test_records_go_on_and_are_kept_unless_they_were_skipped() -> None:
    sunk = Sunk()
    recorder = DecisionRecorder(sunk)
    records = [record(), record(decision="skipped")]
    for each in records:
        recorder.write(each)

    assert sunk.records == records
    assert [each.label for each in recorder.log.latest()] == ["patched"]
    assert recorder.counts.total == {"patched": 1, "skipped": 1}


def test_a_bug_of_the_page_reaches_no_review(caplog: pytest.LogCaptureFixture) -> None:
    sunk = Sunk()
    recorder = DecisionRecorder(sunk)
    for _ in range(3):
        recorder.write(record(endpoint="/no/such/endpoint"))

    assert (len(sunk.records), recorder.failed, len(caplog.records)) == (3, 3, 1)
