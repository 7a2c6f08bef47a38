from __future__ import annotations

import pytest
from click.testing import Result

from tests.cli.runner import Ended, Refused
from tests.golden_files import Golden


@pytest.fixture
def ended(golden: Golden) -> Ended:
    """Holds a command to an exit status, and to the output of the golden file."""

    def check(result: Result, status: int) -> None:
        assert result.exit_code == status, result.output
        golden(result.output)

    return check


@pytest.fixture
def refused(golden: Golden) -> Refused:
    """Holds a command to the one sentence of the golden file, and exit status 2."""

    def check(result: Result) -> None:
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        golden(result.stderr)

    return check
