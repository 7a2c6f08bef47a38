from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from certs.source import self_signed
from tests.cli.runner import EXAMPLES, EXPECTED, http_server, run
from tests.cli.test_serve import FILES, serving
from tests.golden_files import Golden
from tests.waiting import PATIENCE
from webhook.cli import data
from webhook.errors import InputError
from webhook.server.tls import context

ROOT = Path(__file__).resolve().parents[2]
demo = partial(run, "demo")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of its own may take its time, as on a machine that does other things."""
    for limit in ("_START_SECONDS", "_AUDIT_SECONDS"):
        monkeypatch.setattr(f"webhook.cli.demo.{limit}", PATIENCE)


def test_shows_every_answer(patient: None, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(ROOT)
    done = demo()

    assert done.exit_code == 0, done.stderr
    summary = f"\n{len(EXPECTED)} reviews: {len(EXPECTED)} as expected, 0 different; median "
    assert summary in done.stdout
    assert summary in (ROOT / "README.md").read_text()
    lines = done.stdout.splitlines()
    assert sum(line.startswith(("patched ", "allowed ", "denied ", "would-", "skipped ")) for line in lines) == len(
        EXPECTED
    )
    assert "+  schedulerName: kubevirt" in done.stdout
    # One screen; the second line counts the cluster.
    assert (len(lines) <= 45, [line for line in lines[2:] if len(line) > 80 and "export" not in line]) == (True, [])
    here = Path(sys.executable).parent
    written = f"$PWD/{here.relative_to(ROOT)}" if here.is_relative_to(ROOT) else str(here)
    steps = done.stdout[done.stdout.index("\nNext steps") + 1 :]
    golden(steps.replace(written, "DIRECTORY"))
    assert max(map(len, steps.splitlines())) <= 80
    # A user can run the printed commands unchanged.
    (line,) = [line for line in steps.splitlines() if line.startswith("  export ")]
    called = subprocess.run(["bash", "-c", f"{line}; kubevirt-webhook version"], cwd=ROOT, check=True)
    assert called.returncode == 0


def test_a_running_server_is_filled() -> None:
    """So that its page shows something."""
    with serving(*FILES, "--config", str(EXAMPLES / "settings.yaml")) as server:
        done = demo("--against", server.address)

    assert done.exit_code == 0, done.stderr
    assert f"{len(EXPECTED)} reviews sent to {server.address}" in done.stdout
    lines = server.audit  # type: ignore[attr-defined]
    assert len(lines) >= len(EXPECTED)
    assert {"patched", "denied", "allowed"} <= {each["decision"] for each in lines}
    stopped, fix = demo("--against", server.address), "check the URL, and that a server listens there"
    assert stopped.stderr == f"Error: {server.address}: the server does not answer: connection refused; {fix}\n"
    assert stopped.exit_code == demo("--against", "http://127.0.0.1:1").exit_code == 2


def test_an_answer_that_differs_is_exit_1(patient: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    examples = data.directory("examples")
    monkeypatch.setattr(data, "directory", lambda _: tmp_path)
    # Where PATH has the command, its directory is not shown.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    for part in ("cluster", "reviews", "settings.yaml"):
        (tmp_path / part).symlink_to(examples / part)
    (tmp_path / "expected.yaml").write_text("01-launcher-pod.yaml: {decision: denied, reason: other}\n")

    done = demo()

    assert done.exit_code == 1, done.stderr
    assert "expected denied, other" in done.stdout
    assert "\n1 review: 0 as expected, 1 different; " in done.stdout
    assert "PATH" not in done.stdout


def patch(value: bytes) -> bytes:
    return b'{"response": {"allowed": true, "patch": %s}}' % value


@pytest.mark.parametrize(
    ("status", "text"),
    [
        *((200, b"<html>\n" * 1000), (200, b"[]"), (200, b'{"response": 3}'), (200, b"\xff"), (404, b"not\nhere")),
        *((200, b"[" * 99999), (200, patch(b'"%"')), (200, patch(b"3")), (200, patch(b"null"))),
        *((200, patch(b'"W10=W"')), (200, patch(b'"W3t9XQ=="')), (200, patch(b'"/w=="'))),
        # A removal of what no example has.
        (200, patch(b'"W3sib3AiOiAicmVtb3ZlIiwgInBhdGgiOiAiL25vIn1d"')),
    ],
)
def test_another_server_is_named_and_no_example_is_blamed(status: int, text: bytes) -> None:
    pair = self_signed(["127.0.0.1"])
    with http_server(lambda *_: (status, text), context(pair.certificate, pair.key)) as address:
        done = demo("--against", address)

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"Error: {address}: ")
    assert done.stderr.endswith("; check the URL, and that kubevirt-webhook answers there\n")
    assert len(done.stderr) < 500


@pytest.mark.parametrize("limit", ["_START_SECONDS", "_AUDIT_SECONDS"])
def test_a_server_of_its_own_that_is_too_slow_is_no_fault_of_an_api_server(
    patient: None, limit: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(f"webhook.cli.demo.{limit}", 0.0)
    done = demo()
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "API server" not in done.stderr
    golden(done.stderr)


def test_installation_without_its_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden) -> None:
    monkeypatch.setattr(data, "_PACKAGE", tmp_path / "webhook")
    with pytest.raises(InputError) as caught:
        data.directory("examples")
    golden(str(caught.value))
