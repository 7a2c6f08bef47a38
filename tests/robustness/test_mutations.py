"""The reversals can be applied to this code: what they replace is there, by whatever name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.support.processes import ROOT

from .checker import RULES
from .faults import KINDS
from .mutations import MUTATIONS

# What rules report, where that is not the rule's own name.
REPORTED = {"ready-while-blind", "internal-error"} | {rule.__name__.replace("_", "-") for rule in RULES}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_reversal_replaces_something_that_there_is(name: str) -> None:
    lines = (
        "from tests.robustness.mutations import MUTATIONS",
        f"MUTATIONS[{name!r}].apply()",
        "import webhook.server.runtime.serve",
    )
    apply = "\n".join(lines)
    done = subprocess.run([sys.executable, "-c", apply], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_reversal_is_found_by_rules_and_with_faults_that_there_are(name: str) -> None:
    mutation = MUTATIONS[name]
    assert mutation.rules <= REPORTED
    assert set(mutation.faults) <= KINDS.keys()
