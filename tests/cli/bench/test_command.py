from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from click.testing import Result

from tests.cli.bench.test_webhook_metrics import duration, metrics, opened
from tests.cli.runner import Command, Ended, Refused, in_thread, run
from tests.cluster.fake_apiserver import FakeApiServer, running, status
from tests.golden_files import Golden
from webhook.cli import prompt
from webhook.cli.bench import measure, samples
from webhook.cli.bench.report import BenchReport, NotMeasured, RequestFigures, WebhookFigures, lines
from webhook.install.webhooks import CONFIGURATIONS
from webhook.k8s.resources import CONFIG_MAPS, LEASES, NAMESPACES, PODS, Resource
from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.placement.machines import MIGRATIONS

MUTATING = CONFIGURATIONS["MutatingWebhookConfiguration"]
KINDS = ("ConfigMap", "Pod", "VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceMigration")
POD_PATH, VM_PATH = PODS.path("shop"), UNSTRUCTURED_VMS.path("shop")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApiServer]:
    """A cluster with KubeVirt and a VM that runs in the namespace shop."""
    with in_thread(running(FakeApiServer())) as server:
        served: list[Resource[Any]] = [CONFIG_MAPS, LEASES, PODS, UNSTRUCTURED_VMS, MIGRATIONS]
        for resource in [*served, *CONFIGURATIONS.values()]:
            server.serve(resource)
        server.put(NAMESPACES, "shop", metadata={"labels": {"team": "shop"}})
        server.put(UNSTRUCTURED_VMIS, "gone", "shop", status={"phase": "Succeeded"})
        server.put(UNSTRUCTURED_VMIS, "web", "shop", status={"phase": "Running"})
        server.kubeconfig(tmp_path / "kubeconfig")
        yield server


@pytest.fixture
def bench(tmp_path: Path, api: FakeApiServer) -> Command:
    return partial(run, "bench", "--kubeconfig", tmp_path / "kubeconfig", "--number", "2", "--rate", "50", "-n", "shop")


def posted(api: FakeApiServer) -> list[dict[str, Any]]:
    """The bodies of what was written, in their order."""
    return [json.loads(asked.body) for asked in api.asked if asked.method != "GET"]


def report(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def answers(*texts: bytes) -> Callable[[web.Request], web.Response]:
    """One after the other, and the last one again."""
    turns = itertools.chain(texts, itertools.repeat(texts[-1]))
    return lambda _: web.Response(body=next(turns), content_type="text/plain")


def test_each_kind_is_sent_as_a_dry_run_and_nothing_else_is_written(api: FakeApiServer, bench: Command) -> None:
    result = bench("-o", "json")

    assert result.exit_code == 0
    found = report(result)
    assert [(each["kind"], each["requests"], each["denied"]) for each in found["requests"]] == [
        (kind, 2, 0) for kind in KINDS
    ]
    assert [each["baseline"] for each in found["requests"]] == [True, False, False, False, False]
    assert all(0 < each["p50Ms"] <= each["p99Ms"] for each in found["requests"])
    assert found["notMeasured"] == []
    written = [asked for asked in api.asked if asked.method != "GET"]
    assert {(asked.method, asked.query.get("dryRun")) for asked in written} == {("POST", "All")}
    # One of each kind beside those that count.
    assert Counter(body["kind"] for body in posted(api)) == dict.fromkeys(KINDS, 3)
    (migration, *_) = (body for body in posted(api) if body["kind"] == KINDS[-1])
    assert migration["spec"]["vmiName"] == "web"


def test_the_pod_is_one_of_a_vmi_that_runs_so_that_policies_evaluate_it(api: FakeApiServer, bench: Command) -> None:
    """A pod without an owner is skipped, and its figures would be those of no policy."""
    bench("--launcher-as", "system:serviceaccount:kubevirt:kubevirt-controller")
    (pod, *_) = (body for body in posted(api) if body["kind"] == "Pod")
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("VirtualMachineInstance", "web", True)
    assert owner["uid"] == "uid-of-shop-web"


def test_it_says_first_what_it_will_do(bench: Command, golden: Golden) -> None:
    result = bench("--launcher-as", "system:serviceaccount:kubevirt:kubevirt-controller")

    assert result.exit_code == 0
    said, _, measured = result.stdout.partition("\n\n")
    golden(re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", said))
    assert re.match(r"10 dry runs in \d+s\n", measured)


def test_on_a_terminal_it_asks(api: FakeApiServer, bench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "is_on_terminal", lambda: True)

    assert bench(stdin="n\n").exit_code == 0
    assert posted(api) == []
    assert bench(stdin="y\n").exit_code == 0
    assert len(posted(api)) == 15
    assert bench("--yes").exit_code == 0
    assert len(posted(api)) == 30


def test_each_webhooks_share_is_read_from_the_api_server(api: FakeApiServer, bench: Command) -> None:
    before = metrics(duration("pods.example", "admit", [4], 0.01), opened("vms.example", 1))
    after = metrics(
        duration("pods.example", "admit", [4, 6], 0.05),
        duration("vms.example", "validating", [2], 0.004),
        opened("vms.example", 1),
    )
    api.answer("/metrics", answers(before, after), times=2)

    found = report(bench("-o", "json"))

    assert [(each["name"], each["type"], each["calls"], each["meanMs"]) for each in found["webhooks"]] == [
        ("pods.example", "mutating", 2, pytest.approx(20.0)),
        ("vms.example", "validating", 2, pytest.approx(2.0)),
    ]


@pytest.mark.parametrize("answer", ["denied", "not served", "another API server", "no metrics"])
def test_without_the_metrics_there_are_the_clients_figures(
    api: FakeApiServer, bench: Command, golden: Golden, answer: str
) -> None:
    if answer == "denied":
        api.fail("/metrics", 403, "Forbidden", times=2)
    elif answer == "another API server":
        api.answer("/metrics", answers(metrics(started=1), metrics(started=2)), times=2)
    elif answer == "no metrics":
        api.answer("/metrics", answers(b"process_start_time_seconds{ nonsense\n"), times=2)

    result = bench()

    assert result.exit_code == 0
    golden(result.stdout.splitlines()[-1])
    found = report(bench("-o", "json"))
    assert (found["webhooks"], len(found["requests"])) == (None, 5)


def test_a_webhook_that_supports_no_dry_run_is_named(api: FakeApiServer, bench: Command, golden: Golden) -> None:
    text = 'admission webhook "audit.example.com" does not support dry run'
    denial = status(400, "BadRequest", text)
    api.answer(POD_PATH, lambda _: web.json_response(denial, status=400), times=99)

    result = bench()

    assert result.exit_code == 0
    golden("\n".join(line for line in result.stdout.splitlines() if line.startswith("not measured")))
    # It is asked for once, and the other kinds are measured.
    assert len(api.requests(POD_PATH, "post")) == 1
    found = report(bench("-o", "json"))
    assert [each["kind"] for each in found["requests"]] == [kind for kind in KINDS if kind != "Pod"]


def test_permissions_that_are_missing_are_named(api: FakeApiServer, bench: Command, golden: Golden) -> None:
    text = 'pods is forbidden: User "alice" cannot create resource "pods" in API group "" in the namespace "shop"'
    api.answer(POD_PATH, lambda _: web.json_response(status(403, "Forbidden", text), status=403), times=99)
    # As an API server that does not have the kind.
    api.answer(VM_PATH, lambda _: web.Response(text="404 page not found\n", status=404), times=99)
    api.fail(UNSTRUCTURED_VMIS.path("shop"), 403, "Forbidden", times=99, verb="get")

    result = bench()

    assert result.exit_code == 0
    golden("\n".join(line for line in result.stdout.splitlines() if line.startswith("not measured")))


def test_denials_end_a_kind_and_are_no_times(api: FakeApiServer, tmp_path: Path, golden: Golden) -> None:
    text = 'admission webhook "quota.example.com" denied the request: password: hunter2 \x1b[31m is used up'
    allowed = [web.json_response({}, status=201) for _ in range(2)]

    def answer(_: web.Request) -> web.Response:
        return allowed.pop() if allowed else web.json_response(status(403, "Forbidden", text), status=403)

    api.answer(VM_PATH, answer, times=99)

    result = run(
        "bench", "--kubeconfig", tmp_path / "kubeconfig", "--number", "9", "--rate", "50", "-n", "shop", "-o", "json"
    )

    assert result.exit_code == 0
    found = report(result)
    (vms,) = (each for each in found["requests"] if each["kind"] == "VirtualMachine")
    # One was the first, which does not count; after three denials in a row it ends.
    assert (vms["requests"], vms["denied"]) == (4, 3)
    (skipped,) = found["notMeasured"]
    golden(f"{skipped['why']}")


def test_nothing_but_the_baseline(api: FakeApiServer, bench: Command) -> None:
    denial = status(403, "Forbidden", "exceeded quota: none")
    for resource in (PODS, UNSTRUCTURED_VMS, UNSTRUCTURED_VMIS, MIGRATIONS):
        api.answer(resource.path("shop"), lambda _: web.json_response(denial, status=403), times=99, verb="post")

    assert bench().exit_code == 1


def test_the_baseline_is_what_no_webhook_is_called_for(api: FakeApiServer, bench: Command) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["configmaps"]}
    config = {"url": "https://localhost/"}
    elsewhere = {"name": "b.example", "clientConfig": config, "rules": [{**rule, "resources": ["*"]}]}
    elsewhere["namespaceSelector"] = {"matchLabels": {"team": "other"}}
    hooks = [{"name": "a.example", "clientConfig": config, "rules": [rule]}, elsewhere]
    api.put(MUTATING, "all", webhooks=hooks)

    found = report(bench("-o", "json"))

    assert found["requests"][0]["kind"] == "Lease"
    assert found["baselineWebhooks"] == []

    # Where every kind is matched it is said of which webhook.
    hooks[1] = {**elsewhere, "namespaceSelector": {"matchLabels": {"team": "shop"}}}
    api.put(MUTATING, "all", webhooks=hooks)
    assert report(bench("-o", "json"))["baselineWebhooks"] == ["b.example"]


def test_another_namespace_is_a_baseline_of_the_same_kinds(api: FakeApiServer, bench: Command) -> None:
    api.put(NAMESPACES, "other")
    found = report(bench("--baseline-namespace", "other", "-o", "json"))

    kinds = [(each["kind"], each["namespace"], each["baseline"]) for each in found["requests"]]
    assert kinds == [(kind, "other", True) for kind in KINDS[1:4]] + [(kind, "shop", False) for kind in KINDS[1:]]
    assert [(each["kind"], each["namespace"]) for each in found["notMeasured"]] == [(KINDS[-1], "other")]


def test_pods_can_be_those_of_kubevirts_controller(api: FakeApiServer, bench: Command) -> None:
    bench("--launcher-as", "system:serviceaccount:kubevirt:kubevirt-controller")

    users = {(asked.path, asked.headers.get("Impersonate-User")) for asked in api.asked if asked.method == "POST"}
    assert {path for path, user in users if user} == {POD_PATH}


def test_a_namespace_is_no_baseline_of_itself(bench: Command, api: FakeApiServer, refused: Refused) -> None:
    refused(bench("--baseline-namespace", "shop"))
    assert posted(api) == []


@pytest.mark.parametrize("body", ["[]", "null", '{"items": [null, {"status": {"phase": "Running"}}]}', "<html>"])
def test_a_list_of_anything_is_no_vmi_that_runs(api: FakeApiServer, bench: Command, golden: Golden, body: str) -> None:
    api.answer(UNSTRUCTURED_VMIS.path("shop"), lambda _: web.Response(text=body), times=1, verb="get")

    found = report(bench("-o", "json"))

    (migrations,) = found["notMeasured"]
    assert migrations["kind"] == KINDS[-1]
    golden(migrations["why"])


def test_a_kind_whose_dry_runs_get_no_answer_ends_alone(api: FakeApiServer, bench: Command, golden: Golden) -> None:
    answered = [web.json_response({}, status=201) for _ in range(2)]

    def answer(request: web.Request) -> web.Response:
        if answered:
            return answered.pop()
        assert request.transport
        request.transport.close()
        return web.Response()

    api.answer(POD_PATH, answer, times=99)

    found = report(bench("-o", "json"))

    assert {each["kind"]: each["requests"] for each in found["requests"]} == {**dict.fromkeys(KINDS, 2), "Pod": 1}
    (pods,) = found["notMeasured"]
    assert (pods["kind"], pods["namespace"]) == ("Pod", "shop")
    golden(pods["why"])


def test_the_time_is_a_limit_before_the_dry_runs_that_count(
    api: FakeApiServer, bench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=50)
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: next(clock), perf_counter=lambda: 0.0))

    result = bench("-o", "json")

    # By the second look at the clock the minute has nearly passed.
    assert (result.exit_code, report(result)["isCutShort"]) == (1, True)
    assert [body["kind"] for body in posted(api)] == [KINDS[0]]


def test_the_time_is_a_limit(api: FakeApiServer, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    words = ("--number", "1000", "--rate", "2", "--time", "1", "-n", "shop")

    result = run("bench", "--kubeconfig", kubeconfig, *words, "-o", "json")

    assert report(result)["isCutShort"] is True
    assert len(posted(api)) < 15


def test_no_option_goes_beyond_the_hard_limits(bench: Command, ended: Ended, api: FakeApiServer) -> None:
    for words in (("--number", "1001"), ("--rate", "51"), ("--time", "301"), ("--number", "0")):
        ended(bench(*words), 2)
    assert posted(api) == []


def test_a_namespace_must_be_given_and_exist(
    bench: Command, api: FakeApiServer, tmp_path: Path, refused: Refused
) -> None:
    refused(run("bench", "--kubeconfig", tmp_path / "kubeconfig"))
    refused(bench("-n", "nowhere"))
    assert posted(api) == []


def test_without_an_api_server_it_ends(tmp_path: Path, bench: Command, api: FakeApiServer, refused: Refused) -> None:
    api.url = "http://127.0.0.1:1"
    api.kubeconfig(tmp_path / "kubeconfig")
    refused(bench())


def test_the_report_for_people(golden: Golden) -> None:
    def sent(kind: str, p50: float | None, *, baseline: bool = False, denied: int = 0) -> RequestFigures:
        times = (p50, None, None) if p50 is None else (p50, p50 * 2, p50 * 1.25)
        return RequestFigures(kind, "shop", baseline, 100, denied, *times)

    requests = [sent("ConfigMap", 4.5, baseline=True), sent("Pod", 8.25), sent("VirtualMachine", None, denied=100)]
    webhooks = [
        WebhookFigures("virtualmachine-validator.kubevirt.io", "validating", 100, 2, 0, 6.5, 24.0, 8.0),
        WebhookFigures("pods.scheduling.enforce.kubevirt-webhook.github.io", "mutating", 100, 0, 3, 2.5, 4.9, 2.25),
        WebhookFigures("gone.example.com", "validating", 0, 0, 7, None, None, None),
    ]
    skipped = NotMeasured("VirtualMachineInstanceMigration", "shop", "no VMI is known to run", "start one")
    golden("\n".join(lines(BenchReport("c", 14.9, requests, [skipped], webhooks, baseline_webhooks=["a.example"]))))
    golden("\n".join(lines(BenchReport("c", 60.0, requests[:1], [], None, "since nobody may", is_cut_short=True))))
    golden("\n".join(lines(BenchReport("c", 5.0, requests[:1], [], []))))


def test_samples_are_matched_as_the_api_server_matches_them() -> None:
    kind, called = samples.baseline([], "shop", {})
    assert (kind.kind, called) == ("ConfigMap", [])
