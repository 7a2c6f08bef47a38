"""What coverage is measured of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.measuring import ROOT, WITH_CHILDREN, is_measured, mirrors_source

MIRROR = ROOT / "tests" / "placement" / "test_taints.py"
PROGRAM = """
import importlib.util, json, os, pathlib, sys
import coverage
from tests import measuring

spec = importlib.util.spec_from_file_location("steps", sys.argv[1])
steps = importlib.util.module_from_spec(spec)
spec.loader.exec_module(steps)
measured = coverage.Coverage(data_file=None, source=[str(pathlib.Path(sys.argv[1]).parent)])
measured.set_option("run:patch", ["subprocess"])
measured.start()
steps.before()
with measuring.unmeasured():
    steps.within()
    with measuring.unmeasured():
        children = measuring.OF_CHILDREN in os.environ
steps.after()
measured.stop()
lines = sorted(measured.get_data().lines(sys.argv[1]))
print(json.dumps([lines, children, measuring.OF_CHILDREN in os.environ]))
"""


def test_nothing_is_measured_in_between(tmp_path: Path) -> None:
    steps = tmp_path / "steps.py"
    steps.write_text("def before():\n    1\ndef within():\n    1\ndef after():\n    1\n")

    done = subprocess.run([sys.executable, "-c", PROGRAM, steps], cwd=ROOT, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == [[2, 6], False, True]


def test_without_a_measurement_nothing_is_imported() -> None:
    program = "from tests import measuring\nimport sys\nwith measuring.collecting(): print('coverage' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.none())
def test_a_test_that_draws_its_inputs_is_not_measured(request: pytest.FixtureRequest, drawn: None) -> None:
    assert drawn is None
    request.node.path = MIRROR
    assert not is_measured(request.node)


@pytest.mark.repeats
def test_a_test_that_repeats_others_is_not_measured(request: pytest.FixtureRequest) -> None:
    request.node.path = MIRROR
    assert not is_measured(request.node)


def test_files_whose_programs_are_measured_exist() -> None:
    assert [path for path in WITH_CHILDREN if not (path.exists() and mirrors_source(path))] == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/k8s/types/test_scheduling.py", True),
        ("tests/certs/test_files.py", True),
        ("tests/admission/test_messages.py", True),
        ("tests/attacks/test_known.py", False),
        ("tests/e2e/test_support.py", False),
        ("tests/hack/test_site.py", False),
        ("tests/test_docs.py", False),
    ],
)
def test_what_mirrors_the_source_is_measured(path: str, expected: bool) -> None:
    assert (ROOT / path).exists()
    assert mirrors_source(ROOT / path) is expected
