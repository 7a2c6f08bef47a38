from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from certs.source import self_signed
from tests.cli.runner import EXPECTED, run
from tests.golden_files import Golden
from tests.waiting import PATIENCE
from webhook.cli import data
from webhook.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


demo = partial(run, "demo")


def test_shows_every_answer(golden: Golden) -> None:
    command, environment = [sys.executable, "-m", "webhook", "demo"], {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)

    assert done.returncode == 0, done.stderr
    summary = f"\n{len(EXPECTED)} reviews: {len(EXPECTED)} as expected, 0 different; median "
    assert summary in done.stdout
    assert summary in (ROOT / "README.md").read_text()
    assert all(name.removesuffix(".yaml") in done.stdout for name in EXPECTED)
    assert "+  schedulerName: kubevirt" in done.stdout
    assert '"decision": "patched"' in done.stdout
    here = Path(sys.executable).parent
    written = f"$PWD/{here.relative_to(ROOT)}" if here.is_relative_to(ROOT) else str(here)
    steps = done.stdout[done.stdout.index("\nNext steps") + 1 :]
    golden(steps.replace(written, "DIRECTORY"))
    assert max(map(len, steps.splitlines())) <= 80
    # A user can run the printed commands unchanged.
    (line,) = [line for line in steps.splitlines() if line.startswith("  export ")]
    called = subprocess.run(["bash", "-c", f"{line}; kubevirt-webhook version"], cwd=ROOT, check=True, timeout=60)
    assert called.returncode == 0


def test_a_running_server_is_filled(tmp_path: Path) -> None:
    """So that its page shows something."""
    examples = data.directory("examples")
    options = ["--cluster-from", examples / "cluster", "--config", examples / "settings.yaml"]
    options += ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "webhook", "serve", *map(str, options)]
    audit = tmp_path / "audit"
    with audit.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        events = (json.loads(line) for line in server.stderr)
        address = next(each["address"] for each in events if each.get("event") == "serving")
        done = demo("--against", address)
        server.terminate()

    assert done.exit_code == 0, done.stderr
    assert f"{len(EXPECTED)} reviews sent to {address}" in done.stdout
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert len(lines) >= len(EXPECTED)
    assert {"patched", "denied", "allowed"} <= {each["decision"] for each in lines}
    stopped = demo("--against", address)
    assert (stopped.exit_code, stopped.stderr.count("\n")) == (2, 1)
    assert stopped.stderr == (
        f"Error: {address}: the server does not answer: connection refused; "
        "check the URL, and that a server listens there\n"
    )
    assert demo("--against", "http://127.0.0.1:1").exit_code == 2


def test_an_answer_that_differs_is_exit_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    examples = data.directory("examples")
    monkeypatch.setattr(data, "directory", lambda _: tmp_path)
    # Where PATH has the command, its directory is not shown.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    for part in ("cluster", "reviews", "settings.yaml"):
        (tmp_path / part).symlink_to(examples / part)
    (tmp_path / "expected.yaml").write_text("01-launcher-pod.yaml: {decision: denied, reason: other}\n")
    monkeypatch.setattr("webhook.cli.demo._START_SECONDS", PATIENCE)

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
    with _https(status, text) as address:
        done = demo("--against", address)

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"Error: {address}: ")
    assert done.stderr.endswith("; check the URL, and that kubevirt-webhook answers there\n")
    assert len(done.stderr) < 500


@contextmanager
def _https(status: int, text: bytes) -> Iterator[str]:
    """The address of a server that answers everything with one text."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    pair = self_signed(["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as directory, HTTPServer(("127.0.0.1", 0), Handler) as server:
        for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
            Path(directory, name).write_bytes(content)
        context.load_cert_chain(Path(directory, "tls.crt"), Path(directory, "tls.key"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("limit", ["_START_SECONDS", "_AUDIT_SECONDS"])
def test_a_server_of_its_own_that_is_too_slow_is_no_fault_of_an_api_server(
    limit: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    for name in ("_START_SECONDS", "_AUDIT_SECONDS"):
        monkeypatch.setattr(f"webhook.cli.demo.{name}", 0.0 if name == limit else PATIENCE)
    done = demo()
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "API server" not in done.stderr
    golden(done.stderr)


def test_installation_without_its_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden) -> None:
    monkeypatch.setattr(data, "_PACKAGE", tmp_path / "webhook")
    with pytest.raises(InputError) as caught:
        data.directory("examples")
    assert caught.value.where == str(tmp_path / "webhook")
    golden(str(caught.value).replace(caught.value.where, "PACKAGE"))
