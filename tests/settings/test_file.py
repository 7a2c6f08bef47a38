from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import changed
from tests.golden_files import Golden
from webhook import settings_file as file
from webhook.errors import InputError, InputErrors
from webhook.policies.headroom.settings import HeadroomSettings
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.settings import mistakes as mistakes_module
from webhook.settings.mistakes import MAX_MISTAKES
from webhook.settings.model import Settings
from webhook.settings.validation import of_file, schema
from webhook.settings_file import MODEL, SettingsFile, default_settings, effective, load, parse


def rejection(text: str) -> list[str]:
    with pytest.raises(InputErrors) as refused:
        parse(text.encode(), "s.yaml")
    return str(refused.value).split("\n")


@pytest.mark.control("emptied-settings")
def test_an_empty_file_is_a_mistake(golden: Golden) -> None:
    """A truncated file would end everything that the admin enforces."""
    texts = ("", " \n", "# nothing\n", "---\n", "---\n# nothing\n...\n", "null\n")
    golden("\n".join(sorted({line for text in texts for line in rejection(text)})))


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ('apiVersion: v1\nkind: ConfigMap\ndata: {settings.yaml: "{}"}\n', 'its key "settings.yaml"'),
        ('apiVersion: v1\nkind: ConfigMap\ndata: {other: "{}"}\n', 'its key "other"'),
        ("apiVersion: v1\nkind: ConfigMap\n", "a file with settings alone"),
        ("apiVersion: v1\nkind: [5]\n", "a file with settings alone"),
    ],
)
def test_an_object_of_kubernetes_is_one_mistake_that_names_the_settings_in_it(text: str, fix: str) -> None:
    (mistake,) = rejection(text)
    assert mistake.startswith("s.yaml:1: this is a")
    assert fix in mistake


def test_a_file_that_sets_nothing_means_the_defaults(tmp_path: Path) -> None:
    defaults = default_settings()
    assert defaults.digest == "default"
    path = tmp_path / "s.yaml"
    for text in (b"{}", b"server:\n"):
        path.write_bytes(text)
        digest = hashlib.sha256(text).hexdigest()
        assert load(path) == parse(text, "s.yaml") == changed(defaults, digest=digest)


KEYS = [*effective(), "listen", "healthCheck", "x"]


class TestMistakes:
    def test_are_told_all_at_once_in_the_order_of_the_file(self, golden: Golden) -> None:
        told = rejection(
            """\
server:
  listen: ":8443"
  opsListen: 8080
  maxInFlight: "64"
tls: {certFile: a}
excludedNamespaces: [kube-system, 3, UP]
schedulers:
  default-scheduler: {healthCheck: pods}
  a.b: {healthCheck: leese a/b}
  none: {}
  empty:
scheduling: {clusterWide: "true", virtualMachines: yes}
webhooks:
  timeoutSeconds: 30
  namespaceSelector:
    matchExpressions:
    - {key: a, operator: exists}
    - 3
"""
        )

        lines = [2, 3, 4, 5, 6, 6, 8, 9, 10, 11, 12, 12, 14, 17, 18]
        assert [line.partition(": ")[0] for line in told] == [f"s.yaml:{line}" for line in lines]
        golden("\n".join(told))

    def test_come_in_the_order_of_lines_not_of_sections(self) -> None:
        told = rejection("webhooks: {timeoutSeconds: 9}\nx: 1\nserver: {maxInFlight: 0}\n")
        assert [line.partition(": ")[0] for line in told] == ["s.yaml:1", "s.yaml:2", "s.yaml:3"]

    @pytest.mark.parametrize(
        ("text", "key", "suggested"),
        [
            ("servr: {}", "servr", "server"),
            ("tls: {cert_file: x}", "tls.cert_file", "tls.certFile"),
            ("tls: {certfile: x}", "tls.certfile", "tls.certFile"),
            ("timeoutSeconds: 2", "timeoutSeconds", "webhooks.timeoutSeconds"),
            # Every other policy has it, too.
            ("naming: {clusterwide: true}", "naming.clusterwide", "mean naming.clusterWide"),
            ("key-file: 2", "key-file", "tls.keyFile"),
            ("namespace: x", "namespace", "kubevirt.namespace or webhooks.service.namespace"),
            ("webhooks: {namespaceSelector: {zzz: {}}}", "webhooks.namespaceSelector.zzz", "matchExpressions"),
            (
                "schedulers: {a_b: {healthCheck: pods, asumeAlive: true}}",
                "schedulers.a_b.asumeAlive",
                "schedulers.a_b.assumeAlive",
            ),
        ],
    )
    def test_unknown_keys_are_guessed_at(self, text: str, key: str, suggested: str, golden: Golden) -> None:
        (told,) = [line for line in rejection(text) if line.startswith(f"s.yaml:1: {key}: ")]
        assert told.removesuffix("?").endswith(f" {suggested}")
        golden(told)

    @pytest.mark.parametrize(
        ("text", "key"),
        [
            ("server: []", "server"),
            ("schedulers: x", "schedulers"),
            ("excludedNamespaces: {a: b}", "excludedNamespaces"),
            ("excludedNamespaces: [null]", "excludedNamespaces[0]"),
            ("tls: {certFile: [a]}", "tls.certFile"),
            ("server: {maxInFlight: 1.5}", "server.maxInFlight"),
            ("server: {maxInFlight: x1}", "server.maxInFlight"),
            ("server: {maxInFlight: true}", "server.maxInFlight"),
            ("scheduling: {clusterWide: 1}", "scheduling.clusterWide"),
            ("scheduling: {clusterWide: maybe}", "scheduling.clusterWide"),
            ("scheduling: {clusterWide: Off}", "scheduling.clusterWide"),
            ("scheduling: {schedulerName: x}", "scheduling.schedulerName"),
            (
                "webhooks: {namespaceSelector: {matchExpressions: [{key: a, operator: 3}]}}",
                "webhooks.namespaceSelector.matchExpressions[0].operator",
            ),
            ("schedulers: {my_one: {healthCheck: x}}", "schedulers.my_one.healthCheck"),
        ],
    )
    def test_are_told_in_plain_words(self, text: str, key: str, golden: Golden) -> None:
        told = rejection(text)
        assert any(line.startswith(f"s.yaml:1: {key}: ") for line in told)
        golden("\n".join(told))

    @pytest.mark.parametrize("section", ["explain", "metrics", "page"])
    def test_settings_of_former_listeners_name_the_one_of_now(self, section: str, golden: Golden) -> None:
        (told,) = rejection(f"{section}: {{listen: '127.0.0.1:8090'}}")
        assert "admin: {listen: HOST:PORT" in told
        golden(told)

    @pytest.mark.parametrize(
        ("text", "line"),
        [("[]", 1), ("\nhello", 2), ("{}\n---\nserver: {}", 3), ("server: {}\nserver: {}", 2), ("server:\n\t- x", 2)],
        ids=["list", "text", "documents", "duplicate", "tab"],
    )
    def test_of_the_whole_file(self, text: str, line: int, golden: Golden) -> None:
        (told,) = rejection(text)
        assert told.startswith(f"s.yaml:{line}: ")
        golden(told)

    def test_in_words_of_pydantic_where_we_have_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mistakes_module, "_EXPECTED_TYPES", {})
        sentence = "server: Input should be a valid dictionary or instance of ServerSettings"
        assert rejection("server: []") == [f"s.yaml:1: {sentence}"]

    def test_a_large_file(self, tmp_path: Path, golden: Golden) -> None:
        path = tmp_path / "s.yaml"
        path.write_bytes(b"#" * (file.MAX_BYTES + 1))
        with pytest.raises(InputErrors) as refused:
            load(path)
        (error,) = refused.value.mistakes
        assert error.where == str(path)
        golden(f"{error.what}; {error.fix}")

    @pytest.mark.control("megabytes-of-mistakes")
    @pytest.mark.parametrize("line", ["unknown{}: 1\n", "'{}': {{}}\n"])
    def test_of_a_file_without_end_are_counted_and_the_first_listed(
        self, line: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each costs a look through the file, so that a megabyte of them took minutes of the server's processor."""
        described = Mock(side_effect=mistakes_module._mistake)
        monkeypatch.setattr(mistakes_module, "_mistake", described)
        text = "".join(line.format(number) for number in range(2000))
        with pytest.raises(InputErrors) as refused:
            parse(text.encode(), "s.yaml")
        *first, last = refused.value.mistakes
        assert described.call_count == len(first) == MAX_MISTAKES
        assert str(last) == "s.yaml: 1900 more mistakes; correct these first"

    @given(
        st.text()
        | st.recursive(
            st.none() | st.booleans() | st.integers() | st.sampled_from(["off", "x"]) | st.text(),
            lambda below: st.lists(below) | st.dictionaries(st.sampled_from(KEYS) | st.text(), below),
            max_leaves=12,
        ).map(json.dumps)
    )
    def test_never_end_in_anything_else(self, text: str) -> None:
        try:
            settings = parse(text.encode("utf-8", "surrogatepass"), "s.yaml")
        except InputErrors as refused:
            assert all(line.startswith("s.yaml:") for line in str(refused).split("\n"))
        else:
            assert isinstance(settings, Settings)


class TestEffective:
    def test_off_needs_no_quotes(self) -> None:
        """Nor does kubectl read what is in the file. A test's settings stand among objects, and have False there."""
        assert parse(b"scheduling: {spread: off}\nlayers: {pullSecrets: on}\n", "s.yaml").layers.pull_secrets
        assert parse(b"excludedNamespaces: [no, y]\n", "s.yaml").excluded_namespaces == ("no", "y")
        as_booleans, as_text = ({"scheduling": {"spread": off}, "events": off} for off in (False, "off"))
        assert of_file(as_booleans, MODEL) == of_file(as_text, MODEL)

    def test_settings_are_a_settings_file(self, tmp_path: Path) -> None:
        (tmp_path / "in.yaml").write_text(
            "excludedNamespaces: [a]\nschedulers: {b: {healthCheck: off}}\nscheduling: {schedulerName: b}\n"
        )
        shown = effective(tmp_path / "in.yaml")
        (tmp_path / "out.yaml").write_text(yaml.safe_dump(shown))
        assert shown["schedulers"] == {"b": {"healthCheck": "off", "assumeAlive": False, "onlyByWebhook": False}}
        assert (shown["webhooks"]["timeoutSeconds"], effective(tmp_path / "out.yaml")) == (3, shown)
        (tmp_path / "out.yaml").write_text("x: 1")
        with pytest.raises(InputErrors):
            effective(tmp_path / "out.yaml")


class TestSchema:
    def test_takes_what_we_take(self) -> None:
        jsonschema.Draft202012Validator.check_schema(schema(MODEL))
        jsonschema.validate(effective(), schema(MODEL))
        jsonschema.validate({"schedulers": {"a": {"healthCheck": False}}}, schema(MODEL))
        assert '"title"' not in json.dumps(schema(MODEL))
        assert "lease NAMESPACE/NAME" in json.dumps(schema(MODEL))

    @pytest.mark.parametrize(
        "value",
        [
            *({"x": 1}, {"webhooks": {"timeoutSeconds": 4}}, {"schedulers": {"a": {"healthCheck": "lease a"}}}),
            *({"schedulers": {"it's": {"healthCheck": "off"}}}, {"excludedNamespaces": ["A"]}),
        ],
    )
    def test_refuses_what_we_refuse(self, value: dict[str, Any]) -> None:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema(MODEL))


def test_the_import_is_light() -> None:
    code = "import sys, webhook.settings_file; print({'aiohttp', 'kubernetes_asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


class RunningFileWatcher:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.refused: list[InputError] = []
        self.reloaded: list[tuple[Settings, Settings]] = []
        self.restart: list[list[str]] = []
        self.file = SettingsFile(
            path,
            on_rejected=self.refused.append,
            on_reloaded=lambda old, new: self.reloaded.append((old, new)),
            on_restart_needed=self.restart.append,
        )

    async def settle(self, text: str | None = None) -> None:
        if text is not None:
            self.path.write_text(text)
        await self.file.poll()
        await self.file.poll()


@pytest.fixture
def watcher(tmp_path: Path) -> RunningFileWatcher:
    path = tmp_path / "s.yaml"
    path.write_text("scheduling: {clusterWide: false}\n")
    return RunningFileWatcher(path)


GOOD = "scheduling: {clusterWide: true}\n"
BAD = "scheduling: {clusterWide: 3}\n"
MANY_MISTAKES = "".join(f"unknown{number}: 1\n" for number in range(10 * MAX_MISTAKES))


class TestFollowing:
    async def test_an_unchanged_file_calls_nobody(self, watcher: RunningFileWatcher) -> None:
        before = watcher.file.current
        for _ in range(3):
            await watcher.file.poll()
        assert watcher.file.current is before
        assert (watcher.refused, watcher.reloaded, watcher.restart) == ([], [], [])

    async def test_a_change_counts_once_it_was_seen_twice(self, watcher: RunningFileWatcher) -> None:
        before = watcher.file.current
        watcher.path.write_text(GOOD)
        await watcher.file.poll()
        assert watcher.file.current is before
        await watcher.file.poll()
        await watcher.settle()
        assert (watcher.file.current, watcher.reloaded) == (parse(GOOD.encode(), "x"), [(before, watcher.file.current)])

    async def test_a_refused_change_leaves_the_last_good_state_and_is_told_once(
        self, watcher: RunningFileWatcher
    ) -> None:
        before = watcher.file.current
        await watcher.settle(BAD)
        await watcher.settle()
        assert watcher.file.current is before
        assert [str(error).partition(": ")[0] for error in watcher.refused] == [f"{watcher.path}:1"]
        assert watcher.file.problem is watcher.refused[0]
        assert watcher.reloaded == []

        await watcher.settle(BAD + "\n")
        await watcher.settle()
        assert len(watcher.refused) == 2
        await watcher.settle(GOOD)
        assert watcher.file.problem is None
        await watcher.settle(BAD)
        assert len(watcher.refused) == 3

    @pytest.mark.control("megabytes-of-mistakes")
    @pytest.mark.parametrize("text", ["{}\n" + "#" * file.MAX_BYTES, MANY_MISTAKES])
    async def test_a_file_without_end_is_one_bounded_report(self, watcher: RunningFileWatcher, text: str) -> None:
        before = watcher.file.current
        await watcher.settle(text)
        (refused,) = watcher.refused
        assert watcher.file.current is before
        assert len(str(refused).splitlines()) <= MAX_MISTAKES + 1

    @pytest.mark.control("emptied-settings")
    async def test_an_emptied_file_is_refused(self, watcher: RunningFileWatcher) -> None:
        """A truncated file would end everything that the admin enforces."""
        await watcher.settle(GOOD)
        before = watcher.file.current
        for text in ("", "# all gone\n"):
            await watcher.settle(text)
            assert watcher.file.current is before
            assert watcher.file.problem is not None
        await watcher.settle("{}\n")
        assert watcher.file.problem is None
        assert not watcher.file.current.of(SchedulingSettings).cluster_wide

    async def test_taking_a_bad_change_back_is_no_change(self, watcher: RunningFileWatcher) -> None:
        before, text = watcher.file.current, watcher.path.read_text()
        await watcher.settle(BAD)
        await watcher.settle(text)
        assert watcher.file.current is before
        assert (watcher.file.problem, watcher.reloaded) == (None, [])

    async def test_a_file_that_is_away_for_a_moment_is_nothing_and_one_that_stays_away_is_told_once(
        self, watcher: RunningFileWatcher
    ) -> None:
        before, text = watcher.file.current, watcher.path.read_text()
        watcher.path.unlink()
        await watcher.file.poll()
        await watcher.settle(text)
        assert watcher.refused == []
        watcher.path.unlink()
        await watcher.settle()
        await watcher.settle()
        assert [str(error).partition(": ")[0] for error in watcher.refused] == [str(watcher.path)]
        assert watcher.file.current is before
        await watcher.settle(GOOD)
        assert watcher.file.current.of(SchedulingSettings).cluster_wide

    async def test_a_mounted_config_map_is_followed(self, tmp_path: Path) -> None:
        # As the kubelet does it: s.yaml -> ..data/s.yaml, ..data -> a directory by time, replaced atomically.
        for name, text in (("..1", "scheduling: {clusterWide: false}"), ("..2", GOOD)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "s.yaml").write_text(text)
        (tmp_path / "..data").symlink_to("..1")
        (tmp_path / "s.yaml").symlink_to("..data/s.yaml")
        watcher = RunningFileWatcher(tmp_path / "s.yaml")
        (tmp_path / "..tmp").symlink_to("..2")
        (tmp_path / "..tmp").replace(tmp_path / "..data")
        await watcher.settle()
        assert watcher.file.current.of(SchedulingSettings).cluster_wide

    async def test_listeners_and_certificates_wait_for_the_next_start(self, watcher: RunningFileWatcher) -> None:
        at_start = watcher.file.current.server
        moved = "server: {listen: 'a:1', maxInFlight: 9}\ntls: {certFile: c, keyFile: k}\n"
        await watcher.settle(GOOD + moved)

        assert watcher.restart == [["server.listen", "server.maxInFlight", "tls.certFile", "tls.keyFile", "tls.mode"]]
        assert watcher.file.current.server == at_start
        assert watcher.file.current.of(SchedulingSettings).cluster_wide
        assert watcher.reloaded[0][1] is watcher.file.current

        await watcher.settle(GOOD + moved + "# c\n")
        assert (len(watcher.reloaded), len(watcher.restart)) == (2, 1)

        await watcher.settle(GOOD)
        assert len(watcher.restart) == 1

        await watcher.settle("server: {opsListen: 'a:1'}")
        assert watcher.restart[1:] == [["server.opsListen"]]

        await watcher.settle("audit: {keep: 7}")
        assert watcher.restart[2:] == [["audit"]]

    async def test_what_headroom_watches_begins_at_the_next_start(self, watcher: RunningFileWatcher) -> None:
        await watcher.settle("headroom: {enabled: true, nodeLoss: false}")
        assert watcher.restart == [["headroom.enabled"]]
        await watcher.settle("headroom: {enabled: true, clusterWide: true}")
        assert len(watcher.restart) == 1

    async def test_headroom_that_is_switched_off_decides_nothing_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "on.yaml").write_text("headroom: {enabled: true}")
        watcher = RunningFileWatcher(tmp_path / "on.yaml")
        await watcher.settle("headroom: {enabled: false}")
        assert (watcher.restart, watcher.file.current.of(HeadroomSettings).enabled) == ([], False)

    async def test_nobody_needs_to_listen(self, watcher: RunningFileWatcher) -> None:
        quiet = SettingsFile(watcher.path)
        for text in (BAD, "server: {listen: 'a:1'}"):
            watcher.path.write_text(text)
            await quiet.poll()
            await quiet.poll()
        assert quiet.current.digest == hashlib.sha256(b"server: {listen: 'a:1'}").hexdigest()

    async def test_watch_polls_until_cancelled(
        self, watcher: RunningFileWatcher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(file, "POLL_SECONDS", 0)
        task = asyncio.create_task(watcher.file.watch())
        watcher.path.write_text(GOOD)
        while not watcher.reloaded:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def test_a_bad_file_at_the_start_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "s.yaml").write_text(BAD)
        with pytest.raises(InputErrors):
            SettingsFile(tmp_path / "s.yaml")


@pytest.mark.parametrize(
    "other",
    ["schedulers: {a: {healthCheck: leese x/y}}", "schedulers: {a: {healthCheck: pods}}\nmigration: {x: 1}"],
    ids=["declarations", "elsewhere"],
)
@pytest.mark.parametrize("beside", ["", ", spread: nonsense"])
def test_an_undeclared_scheduler_is_told_together_with_the_rest(other: str, beside: str) -> None:
    with pytest.raises(InputErrors) as caught:
        parse(f"{other}\nscheduling: {{schedulerName: b{beside}}}\n".encode(), "file")
    told = [each.what for each in caught.value.mistakes]
    assert sum("is not declared under schedulers" in each for each in told) == 1
    assert len(told) == (3 if beside else 2)
