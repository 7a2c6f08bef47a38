"""A full disk, no more files, and a reader of audit lines that hangs: a whole process each."""

from __future__ import annotations

import os
import resource
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.support.kube import eventually
from tests.e2e.support.processes import free_port
from tests.server.raw_requests import BODY, head
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


@contextmanager
def process(files: int, stdout: int, stderr: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server that may open so many files, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "webhook", "serve", f"--cluster-from={ROOT / 'examples/cluster'}"]
    command += [f"--config={ROOT / 'examples/settings.yaml'}", f"--listen=127.0.0.1:{port}", "--ops-listen=127.0.0.1:0"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, 40), files))

    # The child sets the limit itself: a limit of this process would apply to all tests.
    with subprocess.Popen(command, stdout=stdout, stderr=stderr, preexec_fn=limit) as running:  # noqa: PLW1509
        try:
            yield running, port
        finally:
            running.kill()


def ask(port: int, body: bytes = BODY) -> int:
    """The status of a review; 0: no connection."""
    trust = ssl._create_unverified_context()
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain_socket,
            trust.wrap_socket(plain_socket) as encrypted,
        ):
            # Else the request waits for the handshake's acknowledgement, which takes its 40 ms.
            encrypted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            encrypted.sendall(head(len(body)) + body)
            return int(encrypted.recv(100).split()[1])
    except (OSError, IndexError):
        return 0


def test_full_disks_and_files_that_run_out_stop_nothing() -> None:
    """Standard output and error on a full disk; more connections than files, whose limit the server raises itself."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with process(120, full, full) as (running, port):
            eventually(lambda: ask(port) == 200, what="the first answer")
            assert all(ask(port) == 200 for _ in range(20))
            # More than the 40 that it was started with.
            idle = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(60)]
            assert ask(port) == 200
            idle += [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(100)]
            assert running.poll() is None
            for each in idle:
                each.close()
            eventually(lambda: ask(port) == 200, what="reviews to be served again, as soon as there are files")
            assert running.poll() is None
    finally:
        os.close(full)


def test_a_reader_of_audit_lines_that_hangs_stops_nothing() -> None:
    reading, writing = os.pipe()
    try:
        with process(1000, writing, subprocess.DEVNULL) as (running, port):
            eventually(lambda: ask(port) == 200, what="the first answer")
            # Far more than a pipe holds.
            assert all(ask(port) == 200 for _ in range(150))
            eventually(lambda: not select.select((), (writing,), (), 0)[1], what="a thread to fill the pipe")
            assert running.poll() is None
    finally:
        os.close(reading)
        os.close(writing)
