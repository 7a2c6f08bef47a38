"""`kubevirt-webhook demo`: the real server over the example cluster, called as an API server would call it."""

from __future__ import annotations

import asyncio
import base64
import copy
import difflib
import json
import os
import shutil
import signal
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import jsonpatch
import yaml
from rich.console import Console
from rich.text import Text

from certs.source import self_signed
from webhook import __version__
from webhook.cli import data
from webhook.cli.console import STYLES, console
from webhook.cli.review.result import WEIGHT
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError
from webhook.forecast import requests
from webhook.install.registration import check_url
from webhook.k8s.yaml_documents import read_documents
from webhook.settings.model import Settings
from webhook.settings_file import load
from webhook.text import pluralize, shorten

_AGAINST: Final = "Send the reviews to the server at URL, for example https://127.0.0.1:8443, instead of starting one."
_START_SECONDS: Final = 60.0
_AUDIT_SECONDS: Final = 30.0
_SLOW: Final = "run the command again when this machine has less to do"
# What reading something else than an AdmissionReview, or applying its patch, may raise.
_NO_ANSWER: Final = (
    *(ValueError, KeyError, TypeError, RecursionError),
    *(jsonpatch.JsonPatchException, jsonpatch.JsonPointerException),
)


@dataclass
class Answered:
    """One example, its answer and its audit line."""

    name: str
    request: dict[str, Any]
    expected: dict[str, str]
    response: dict[str, Any]
    audit: dict[str, Any]
    seconds: float

    @property
    def is_expected(self) -> bool:
        """Whether the answer is the one that the example declares."""
        reason = self.audit.get("reasons", [{}])[0].get("code")
        return (self.audit.get("decision"), reason) == (self.expected["decision"], self.expected["reason"])


@dataclass(frozen=True)
class _Demo:
    """What sends the examples to a server; its audit lines are None where they go elsewhere."""

    examples: Path
    cluster: FilesCluster
    settings: Settings
    client: aiohttp.ClientSession
    address: str
    audit: asyncio.Queue[dict[str, Any]] | None = None

    async def ask(self, name: str, expected: dict[str, str]) -> Answered:
        """The answer of the policy that decides about an example."""
        path = self.examples / "reviews" / name
        (document,) = read_documents(path)
        review = await requests.to_review_request(document, self.cluster, 0.0)
        answers = []
        for endpoint in await requests.endpoints(review.request, self.cluster, self.settings, 0.0):
            url, headers = f"{self.address}{endpoint.path}?timeout=3s", {"Content-Type": "application/json"}
            start = time.perf_counter()
            async with self.client.post(url, data=review.body, headers=headers) as answer:
                body = await answer.read()
            seconds = time.perf_counter() - start
            request = review.request
            response, patched = self._response(answer.status, body, path, request.get("object"))
            decision = "denied" if not response["allowed"] else "patched" if "patch" in response else "allowed"
            line: dict[str, Any] = {"decision": decision}
            if self.audit:
                try:
                    # The server writes it after the answer.
                    async with asyncio.timeout(_AUDIT_SECONDS):
                        line = await self.audit.get()
                except TimeoutError:
                    what = f"the server wrote no audit line within {_AUDIT_SECONDS:.0f}s"
                    raise InputError(what, "serve", _SLOW) from None
            answers.append(Answered(path.stem, copy.deepcopy(review.request), expected, response, line, seconds))
            if not response["allowed"]:
                break
            # As in the API server, the next webhook sees the patched object.
            request["object"] = patched
        return max(answers, key=lambda one: WEIGHT.index(one.audit["decision"]))

    def _response(self, status: int, body: bytes, path: Path, obj: Any) -> tuple[dict[str, Any], Any]:
        """The response in an AdmissionReview, and the object with its patch; an `InputError` for another answer."""
        text = shorten(" ".join(body.decode(errors="replace").split()), 200)
        kind = f"the server answered status {status}" if status != 200 else "answered no AdmissionReview"
        what = f"{kind}: {text}"
        if status == 200:
            with suppress(*_NO_ANSWER):
                response: dict[str, Any] = json.loads(body)["response"]
                if isinstance(response["allowed"], bool):
                    return response, _patched(obj, response) if "patch" in response else obj
        if self.audit:
            raise InputError(what, str(path), "correct the example")
        raise InputError(what, self.address, "check the URL, and that kubevirt-webhook answers there")


@click.command()
@click.option("--against", "url", default="", metavar="URL", help=_AGAINST)
def demo(url: str) -> None:
    """Start the server with the example cluster, send it the example reviews over TLS, and show its answers.

    With --against, a server that runs already gets them, so that its page and its metrics show something. Its
    certificate is not verified: the examples hold nothing secret.

    Exit status 1 if an answer differs from the one that the example declares; with --against, none is compared.
    """
    examples = data.directory("examples")
    settings_file = examples / "settings.yaml"
    settings = load(settings_file)
    cluster = FilesCluster.load(examples / "cluster", settings)
    if url:
        check_url(url, "--against")
        asyncio.run(_fill(url.rstrip("/"), examples, cluster, settings))
        return
    pair = self_signed(["localhost", "127.0.0.1"])
    with tempfile.TemporaryDirectory(prefix="kubevirt-webhook-demo-") as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(pair.certificate)
        key.touch(0o600)
        key.write_bytes(pair.key)
        arguments = ["--cluster-from", examples / "cluster", "--config", settings_file, "--listen", "127.0.0.1:0"]
        arguments += ["--ops-listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key]
        trust = ssl.create_default_context(cadata=pair.authority.decode())
        try:
            answers = asyncio.run(_run(examples, [*map(str, arguments)], trust, cluster, settings))
        except asyncio.CancelledError:
            raise SystemExit(143) from None
    if not all(answer.is_expected for answer in answers):
        raise SystemExit(1)


async def _fill(url: str, examples: Path, cluster: FilesCluster, settings: Settings) -> None:
    """Send the examples to a server that runs, and show what it answers."""
    out, seconds = console(), []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as client:
        demo = _Demo(examples, cluster, settings, client, url)
        for path in sorted((examples / "reviews").iterdir()):
            try:
                answer = await demo.ask(path.name, {})
            except (aiohttp.ClientError, OSError) as error:
                number = getattr(error, "errno", None) or 0
                why = os.strerror(number).lower() if number > 0 else str(error) or type(error).__name__
                fix = "check the URL, and that a server listens there"
                raise InputError(f"the server does not answer: {why}", url, fix) from None
            seconds.append(answer.seconds)
            decision = answer.audit["decision"]
            out.print(Text.assemble((f"{decision:<12}", STYLES[decision]), answer.name))
    median = statistics.median(seconds) * 1000
    out.print(f"\n{pluralize(len(seconds), 'review')} sent to {url}; median {median:.1f}ms over TLS")


async def _run(
    examples: Path, arguments: list[str], trust: ssl.SSLContext, cluster: FilesCluster, settings: Settings
) -> list[Answered]:
    """Start a server, send it the examples, and show its answers."""
    out, task = console(), asyncio.current_task()
    assert task
    for number in (signal.SIGTERM, signal.SIGHUP):
        # The server must not outlive this command.
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    expected = yaml.safe_load((examples / "expected.yaml").read_text())
    async with _serving(arguments) as (address, audit):
        python = ".".join(map(str, sys.version_info[:3]))
        out.print(Text.assemble(("kubevirt-webhook ", "bold"), f"{__version__} on Python {python}, {address}"))
        out.print(f"cluster: {cluster.summary()}\n")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as client:
            demo = _Demo(examples, cluster, settings, client, address, audit)
            answers = []
            for name in sorted(expected):
                answers.append(await demo.ask(name, expected[name]))
                _show_row(out, answers[-1])
    _show(out, answers)
    return answers


def _patched(obj: Any, response: dict[str, Any]) -> Any:
    return jsonpatch.apply_patch(obj, json.loads(base64.b64decode(response["patch"], validate=True)))


@asynccontextmanager
async def _serving(arguments: list[str]) -> AsyncIterator[tuple[str, asyncio.Queue[dict[str, Any]]]]:
    """The address of a `serve` process that has logged where it listens, and its audit lines as they are written."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "webhook", "serve", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = process.stdout, process.stderr
    assert out
    assert err
    lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def audit() -> None:
        while line := await out.readline():
            lines.put_nowait(json.loads(line))

    reading = asyncio.create_task(audit())
    try:
        yield await _address(err), lines
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await reading


async def _address(stderr: asyncio.StreamReader) -> str:
    """Where a server logs that it listens; an `InputError` with what it logged where it does not, or not in time."""
    output, what, fix = list[str](), "the server did not start", ""
    try:
        async with asyncio.timeout(_START_SECONDS):
            while line := await stderr.readline():
                output.append(line.decode())
                with suppress(ValueError):
                    event = json.loads(line)
                    if event.get("event") == "serving":
                        return str(event["address"])
    except TimeoutError:
        what, fix = f"{what} within {_START_SECONDS:.0f}s", _SLOW
    raise InputError(": ".join(filter(None, (what, " ".join("".join(output).split())))), "serve", fix)


# As kubectl has them.
_SHORT_NAMES: Final = {
    "VirtualMachine": "vm",
    "VirtualMachineInstance": "vmi",
    "VirtualMachineInstanceMigration": "vmim",
    "Pod": "pod",
}


def _show_row(out: Console, answer: Answered) -> None:
    """A request with its decision and its reason's code, on a line of at most 80 columns."""
    audit = answer.audit
    kind = _SHORT_NAMES.get(audit["object"]["kind"], audit["object"]["kind"])
    verb = "" if audit["operation"] == "CREATE" else f"{audit['operation'].lower()} "
    what = f"{verb}{kind} {audit['object']['namespace']}/{audit['object']['name']}"
    row = Text.assemble((f"{audit['decision']:<12}", STYLES[audit["decision"]]), f"{audit['mode']:<8}{what:<32} ")
    row.append(audit["reasons"][0]["code"], style="dim")
    if not answer.is_expected:
        row.append(f"  (expected {answer.expected['decision']}, {answer.expected['reason']})", style="bold red")
    out.print(row, soft_wrap=True)


def _show(out: Console, answers: list[Answered]) -> None:
    """What one decision changes, the summary and the next steps."""
    answer = next(answer for answer in answers if "patch" in answer.response)
    obj = answer.request["object"]
    both = (obj, _patched(obj, answer.response))
    before, after = (yaml.safe_dump(each, sort_keys=False, width=1000).splitlines() for each in both)
    reason = answer.audit["reasons"][0]
    out.print(Text(f"\nThe first one: {reason['text']}"), soft_wrap=True)
    for line in difflib.unified_diff(before, after, n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            out.print(Text(f"  {line}", style={"-": "red", "+": "green"}[line[:1]]))
    expected = sum(answer.is_expected for answer in answers)
    median = statistics.median(answer.seconds for answer in answers) * 1000
    counts = f"{pluralize(len(answers), 'review')}: {expected} as expected, {len(answers) - expected} different"
    out.print(f"\n{counts}; median {median:.1f}ms over TLS\n\nNext steps:")
    examples = data.directory("examples")
    # Beside the Makefile, as after `make run`; from a wheel the examples are among the program's own files.
    if examples == Path.cwd() / "examples":
        serve, given = "make serve", "examples"
    else:
        serve = f"kubevirt-webhook serve --cluster-from {examples / 'cluster'} --config {examples / 'settings.yaml'}"
        serve, given = f"{serve} --listen 127.0.0.1:8443", str(examples)
    for command, purpose in (
        (
            f"kubevirt-webhook review {given}/vms --cluster-from {given}/cluster",
            "evaluate a manifest of yours",
        ),
        (serve, "keep the server running, with its page"),
        ("kubevirt-webhook install --image IMAGE --dry-run", "see what an installation creates in your cluster"),
    ):
        # A long command is copied, so it stands on a line of its own.
        out.print(f"  {command}\n      {purpose}", soft_wrap=True, highlight=False, markup=False)
    here, executable = Path(sys.executable).parent, shutil.which("kubevirt-webhook")
    program = here / "kubevirt-webhook"
    if program.exists() and not (executable and Path(executable).samefile(program)):
        directory = f"$PWD/{here.relative_to(Path.cwd())}" if here.is_relative_to(Path.cwd()) else str(here)
        text = "To call the command by its name, add its directory to PATH:"
        out.print(f'\n{text}\n  export PATH="{directory}:$PATH"', soft_wrap=True)
