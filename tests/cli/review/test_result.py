from __future__ import annotations

import pytest

from tests.cli.review.samples import every, result
from tests.golden_files import Golden
from webhook.cli.review.result import Result, Summary


def summary(*results: Result, **fields: int) -> Summary:
    made = Summary(files=1, **fields)  # type: ignore[arg-type]
    for each in results:
        made.add(each)
    return made


@pytest.mark.parametrize(
    ("results", "status", "strict"),
    [
        *(([result("patched"), result("skipped")], 0, 0), ([result(warnings=["w"])], 0, 1)),
        *(([result("would-deny")], 0, 1), ([result("denied")], 1, 1), ([result("error")], 3, 3)),
        *(([result("error"), result("denied")], 1, 1), ([result("error"), result(warnings=["w"])], 3, 1)),
    ],
)
def test_exit_status(results: list[Result], status: int, strict: int) -> None:
    made = summary(*results)
    assert made.exit_status("deny") == status
    assert made.exit_status("warn") == strict


def test_bad_input_weighs_most() -> None:
    assert summary(result("denied"), mistakes=1).exit_status("deny") == 2


def test_one_line_says_everything(golden: Golden) -> None:
    made = summary(*every(), foreign=1, mistakes=2)
    made.join(summary(result("patched"), result("patched")))
    assert made.total == 9
    golden(made.line())
    assert summary(result()).line() == "1 object in 1 file: 1 allowed"
    assert Summary(files=1, unmatched=3).line() == "0 objects in 1 file: 3 of other kinds"
