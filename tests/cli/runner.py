"""Running a command in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
from click.testing import CliRunner, Result

from tests.waiting import PATIENCE
from webhook.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
# The decision and the reason of each review among the examples.
EXPECTED: dict[str, dict[str, str]] = yaml.safe_load((EXAMPLES / "expected.yaml").read_text())
T = TypeVar("T")
# A command with some of its arguments; the fixtures `ended` and `refused` of tests/cli/conftest.py.
Command = Callable[..., Result]
Ended = Callable[[Result, int], None]
Refused = Callable[[Result], None]


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from commands(found, (*path, name))


@contextmanager
def http_server(answer: Callable[[BaseHTTPRequestHandler, bytes], tuple[int, bytes]], tls: Any = None) -> Iterator[str]:
    """The address of a server that answers each POST, given its handler and its body, with a status and a body.

    It has a thread of its own, since commands have loops of their own, on which pytest-aiohttp's servers do not answer.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, body = answer(self, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def in_thread(served: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """What is served in a thread: a command has a loop of its own."""
    loop, ready, end = asyncio.new_event_loop(), Future[T](), asyncio.Event()

    async def serve() -> None:
        async with served as found:
            ready.set_result(found)
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield ready.result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()
