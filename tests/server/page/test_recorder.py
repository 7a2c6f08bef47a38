from __future__ import annotations

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
