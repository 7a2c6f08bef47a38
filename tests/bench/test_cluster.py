"""The benchmark of a whole API server: its arithmetic, its client, and a short run of it without Kyverno."""

from __future__ import annotations

import json
import math
import os
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from bench.cluster import load, published
from bench.cluster.__main__ import main
from bench.cluster.calls import Calls
from bench.cluster.figures import Figures, Ratio, Sample, percentile
from bench.cluster.load import Arrival, Creations, Series
from bench.cluster.objects import ELSEWHERE, LAUNCHER, MACHINE, SCHEDULER, bodies, fixed_patches
from bench.cluster.report import STEADY, ClusterReport
from bench.reviews import host
from bench.reviews.errors import BenchError, MissingToolError
from bench.reviews.published import replaced
from bench.reviews.servers import ROOT
from hack.controlplane import build
from tests.e2e.support.access import Access

ARRIVALS = (
    Arrival("warm-up", "warm-up", 1, per_second=60),
    Arrival(STEADY, "60 a second", 3, per_second=60),
    Arrival("users", "10 users", 1.5, users=10),
)
VERSIONS = {"Machine": "a machine, 2 cores", "Kubernetes": "1.37.2"}
MACHINES: Sequence[Mapping[str, Any]] = [
    {"metadata": {"name": f"pool-{number}", "uid": f"u{number}"}} for number in (0, 1)
]


def sample(
    way: str = "ours",
    milliseconds: Sequence[float] = (1.0, 2.0),
    kind: str = "pod",
    arrival: str = STEADY,
    number: int = 0,
    failed: Mapping[str, int] | None = None,
    passed_over: int = 0,
    seconds: float = 2.0,
) -> Sample:
    costs = (0.5, 0.25, 60.0 + number)
    return Sample(way, kind, arrival, number, milliseconds, failed or {}, seconds, *costs, 4, 0.02, passed_over)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        (range(1, 101), 0.5, 50),
        (range(100, 0, -1), 0.95, 95),
        (range(1, 101), 0.99, 99),
        (range(1, 201), 0.99, 198),
        ([7.0], 0.99, 7.0),
        ([1.0, 9.0], 0.5, 1.0),
        ([1.0] * 99 + [500.0], 0.99, 1.0),
        ([1.0] * 98 + [500.0] * 2, 0.99, 500.0),
    ],
)
def test_a_percentile_is_a_measured_value(values: Sequence[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_figures_are_of_all_objects_of_all_rounds() -> None:
    slow = sample(milliseconds=[1.0] * 50, failed={"status 500": 3}, number=0)
    figures = Figures([slow, sample(milliseconds=[3.0] * 49 + [9.0], number=1, passed_over=2)])

    assert figures.objects == 103
    assert figures.failed == Counter({"status 500": 3, "webhook passed over": 2})
    assert (figures.at(0.5), figures.at(0.95), figures.at(1.0)) == (1.0, 3.0, 9.0)
    assert figures.per_second == 100 / 4
    assert (figures.webhook_cpu_ms, figures.apiserver_cpu_ms) == (1000 / 103, 500 / 103)
    assert (figures.memory_mb, figures.call_ms) == (61.0, 5.0)
    assert math.isnan(Figures([sample(milliseconds=[], failed={"status 500": 1})]).at(0.99))


def test_a_ratio_compares_what_met_the_same_machine() -> None:
    ours = [sample(milliseconds=[value], number=number) for number, value in enumerate((4.0, 6.0, 5.0))]
    other = [sample("empty", [value], number=number) for number, value in enumerate((4.0, 3.0, 10.0))]

    assert Ratio.of(Figures(ours), Figures(other[::-1])) == Ratio(1.0, 0.5, 2.0, 0.6)
    assert Ratio.of(Figures(ours[:1]), Figures(other[1:])) is None
    assert Ratio.of(Figures([sample(milliseconds=[])]), Figures(other)) is None


def report(**slowest: float) -> ClusterReport:
    """Of ways whose p99 is so long, with both kinds."""
    samples = [
        sample(way.replace("_", "-"), [value], kind.key, arrival.key)
        for way, value in slowest.items()
        for kind in (LAUNCHER, MACHINE, ELSEWHERE)
        for arrival in ARRIVALS
    ]
    return ClusterReport(ARRIVALS, VERSIONS, samples)


def test_each_goal_is_judged() -> None:
    goals = {line: line.rsplit(": ", 1)[1] for line in report(ours=6, kyverno=10, kyverno_cel=9, empty=3).goals()}

    assert [*goals.values()] == ["met", "NOT met", "met", "met", "NOT met", "NOT met"]
    assert [*report(ours=6, none=3).goals()] == []


def test_a_failure_is_shown_in_every_table(tmp_path: Path) -> None:
    shown = report(none=2, ours=3, kyverno=7)
    shown = ClusterReport(
        ARRIVALS, VERSIONS, [*shown.samples, sample("kyverno", [], arrival="users", failed={"status 429": 5}, number=1)]
    )

    assert shown.faults == Counter({"status 429": 5})
    lines = shown.markdown().splitlines()
    assert "| Kyverno, ClusterPolicy | 7.0 / 7.0 / 7.0 | 7.0 / 7.0 / 7.0 | 0 |" in lines
    assert "| Kyverno, ClusterPolicy | 5.00 | 500.00 | 250.00 | 61 | 8 | 5 |" in lines
    assert "* Kyverno, ClusterPolicy: 5 objects: status 429" in lines
    assert "| **kubevirt-webhook** | **3.0 / 3.0** | **3.0 / 3.0** | **3.0 / 3.0** | **60** |" in shown.summary()


def test_a_way_that_does_not_keep_up_is_named() -> None:
    samples = [
        sample("none", [1.0] * 180, seconds=3.01),
        sample("ours", [1.0] * 180, seconds=3.3),
        sample("kyverno", [1.0] * 180, seconds=4.5),
        sample("kyverno", [1.0] * 9, arrival="users", seconds=4.5),
    ]

    late = [line for line in ClusterReport(ARRIVALS, VERSIONS, samples).markdown().splitlines() if "keep up" in line]
    assert len(late) == 1
    assert late[0].startswith("* Kyverno, ClusterPolicy did not keep up: 40 of 60 launcher pods in a second")


def test_runs_are_put_together(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("1.json", "2.json", "other.json")]
    for file, value in zip(files[:2], (1.0, 5.0), strict=True):
        report(ours=value, none=value).write(file)
    ClusterReport(ARRIVALS, {**VERSIONS, "Kubernetes": "1.36.0"}, []).write(files[2])

    both = ClusterReport.read(files[:2])
    assert (both.runs, both.rounds) == (2, 2)
    figures = both.figures["ours", "pod", STEADY]
    assert (figures.at(0.5), figures.at(0.99), [each.round for each in figures.rounds]) == (1.0, 5.0, [0, 1])
    both.write(tmp_path / "both.json")
    assert ClusterReport.read([tmp_path / "both.json"]) == both
    with pytest.raises(BenchError, match="other versions"):
        ClusterReport.read(files)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "\udcff"])
def test_a_file_of_something_else_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    assert main(["--combine", str(file)]) == 1
    assert "is no run of this benchmark" in capsys.readouterr().err


def test_the_calls_between_two_moments_are_counted() -> None:
    metric = "apiserver_admission_webhook_admission_duration_seconds"
    page = (
        f"# TYPE {metric} histogram\n"
        f'{metric}_bucket{{name="a",operation="CREATE",le="0.005"}} 2\n'
        f'{metric}_sum{{name="a",operation="CREATE"}} %s\n{metric}_count{{name="a",operation="CREATE"}} %s\n'
        f'{metric}_sum{{name="a",operation="UPDATE"}} 9\n{metric}_count{{name="a",operation="UPDATE"}} 9\n'
        'apiserver_admission_webhook_fail_open_count{name="a"} %s\napiserver_other_total 5\n'
    )
    before = Calls.of(page % (0.5, 2, 1))

    assert before == Calls(2, 0.5, 1)
    assert Calls.of(page % (2.0, 5, 3)).since(before) == Calls(3, 1.5, 2)
    assert Calls.of("") == Calls()


def test_the_tables_have_places_in_the_pages(tmp_path: Path) -> None:
    begin, end = f"<!-- {published.COMMAND} writes from here -->", "<!-- to here -->"
    (tmp_path / "docs").mkdir()
    for name in (published.README, published.PAGE):
        (tmp_path / name).write_text(f"Before.\n{begin}\n\nold\n\n{end}\nAfter.\n")

    assert published.write(report(ours=6, none=3), tmp_path) == [published.README, published.PAGE]
    for name in (published.README, published.PAGE):
        page = (tmp_path / name).read_text()
        assert ("old" in page, "**kubevirt-webhook**" in page) == (False, True)
        assert replaced((ROOT / name).read_text(), "table", published.COMMAND)


def test_launcher_pods_are_those_of_their_machines() -> None:
    pods = bodies(LAUNCHER, MACHINES)

    owners = [pod["metadata"]["ownerReferences"][0] for pod in pods]
    assert [(owner["name"], owner["uid"]) for owner in owners] == [("pool-0", "u0"), ("pool-1", "u1")]
    assert not {"name", "namespace", "uid", "managedFields"} & pods[0]["metadata"].keys()
    assert (LAUNCHER.scheduler(pods[0]), ELSEWHERE.scheduler(bodies(ELSEWHERE, ())[0])) == (None, None)


def test_the_fixed_patches_write_the_scheduler() -> None:
    pod, machine = bodies(LAUNCHER, MACHINES)[0], bodies(MACHINE, ())[0]
    options = fixed_patches()
    patches = dict(zip(options[::2], options[1::2], strict=True))

    for kind, item in ((LAUNCHER, pod), (MACHINE, machine)):
        assert kind.scheduler(jsonpatch.apply_patch(item, json.loads(patches[kind.patch]))) == SCHEDULER


@pytest.fixture(scope="module")
def client() -> Path:
    try:
        return load.build(host.cache_directory())
    except MissingToolError as error:
        pytest.skip(str(error))


@contextmanager
def answering(directory: Path, answers: Sequence[tuple[int, str]]) -> Iterator[tuple[Access, list[str]]]:
    """An API server that gives these answers by turns, and the paths and bodies that it was asked with."""
    asked: list[str] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            with lock:
                status, answer = answers[len(asked) % len(answers)]
                asked.append(f"{self.path} {body}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    access = Access(directory, f"https://localhost:{server.server_port}", directory)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(access.pki.serving("api"))
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield access, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def created(directory: Path, client: Path, arrival: Arrival, *, written: bool) -> tuple[Creations, list[str]]:
    pods = {name: json.dumps({"spec": {"schedulerName": name}}) for name in (SCHEDULER, "default-scheduler")}
    answers = [(201, pods[SCHEDULER]), (201, pods["default-scheduler"]), (500, "no"), (201, "half")]
    with answering(directory, answers) as (access, asked):
        series = Series(LAUNCHER, "demo", [{"number": 1}, {"number": 2}], written)
        return load.create(access, client, series, arrival), asked


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize(
    "arrival",
    [Arrival("a", "at a rate", 0.5, per_second=80), Arrival("b", "in bursts", 0.5, per_second=80, burst=8)],
    ids=lambda arrival: arrival.key,
)
def test_every_object_is_counted(tmp_path: Path, client: Path, arrival: Arrival, written: bool) -> None:
    seen, asked = created(tmp_path, client, arrival, written=written)

    assert (seen.objects, len(asked), len(seen.milliseconds)) == (40, 40, 10)
    assert seen.failed == {"not as it should be": 10, "status 500": 10, "not JSON": 10}
    assert {line.partition(" ")[0] for line in asked} == {"/api/v1/namespaces/demo/pods?dryRun=All"}
    assert Counter(line.rpartition(" ")[2] for line in asked) == {"1}": 20, "2}": 20}


def test_each_user_waits_for_an_answer(tmp_path: Path, client: Path) -> None:
    seen, asked = created(tmp_path, client, Arrival("c", "users", 0.5, users=3), written=True)

    assert seen.objects == len(asked) > 3
    assert seen.milliseconds
    assert seen.seconds >= 0.5


def test_a_server_that_is_gone_is_a_failure_of_each_object(tmp_path: Path, client: Path) -> None:
    with answering(tmp_path, [(201, "{}")]) as (access, _):
        pass
    seen = load.create(access, client, Series(LAUNCHER, "demo", [{}], True), Arrival("a", "a", 0.2, per_second=50))

    assert (seen.objects, seen.milliseconds, sum(seen.failed.values())) == (10, [], 10)


def test_only_dry_runs_on_this_machine_are_sent(tmp_path: Path, client: Path) -> None:
    arrival = Arrival("a", "a", 0.1, per_second=10)
    access = Access(tmp_path, "https://192.0.2.1:6443", tmp_path)

    with pytest.raises(BenchError, match="loopback"):
        load.create(access, client, Series(LAUNCHER, "demo", [{}], True), arrival)


@pytest.mark.e2e
@pytest.mark.usefixtures("client")
def test_it_runs_on_a_real_api_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        build.ensure(os.environ)
    except build.UnavailableError as error:
        if os.environ.get("E2E_REQUIRED") == "1":
            raise
        pytest.skip(str(error))
    ways = ["none", "ours", "empty", "same-patch", "controller-runtime", "policy"]
    words = f"--rounds 1 --seconds 1 --rate 10 --ways {','.join(ways)} --json {tmp_path / 'run.json'}"

    # On a busy machine the API server may pass over a webhook, which the second status says.
    assert main(words.split()) in (0, 1)

    samples = ClusterReport.read([tmp_path / "run.json"]).samples
    assert {each.way for each in samples} == {*ways}
    assert all(each.milliseconds for each in samples)
    called = {key: sum(each.calls for each in samples if (each.way, each.kind) == key) for key in _keys(samples)}
    assert {key for key, calls in called.items() if calls} == {
        (way, kind) for way in ("ours", "empty", "same-patch", "controller-runtime") for kind in ("pod", "vm")
    }
    assert {each.way for each in samples if each.memory_mb} == {*ways} - {"none", "policy"}
    assert capsys.readouterr().out.count("| **kubevirt-webhook** |") == 5


def _keys(samples: Sequence[Sample]) -> set[tuple[str, str]]:
    return {(each.way, each.kind) for each in samples}
