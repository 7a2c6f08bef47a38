"""A settings file that changes while the server runs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from pathlib import Path

import pytest

from webhook.errors import InputError, InputErrors
from webhook.settings.file import MAX_BYTES, SettingsFile, ValidationFailed, parse, parse_apart
from webhook.settings.model import Settings
from webhook.settings.validation import MAX_MISTAKES

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "settings"


class RunningFileWatcher:
    """A followed file and what was called back."""

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
            interval=0,
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
        assert watcher.file.current == parse(GOOD.encode(), "x")
        assert watcher.reloaded == [(before, watcher.file.current)]

    async def test_a_write_that_is_still_going_on_is_not_read(self, watcher: RunningFileWatcher) -> None:
        for text in ("", "scheduling:", "scheduling: {clus", GOOD):
            watcher.path.write_text(text)
            await watcher.file.poll()
        await watcher.file.poll()
        assert (watcher.refused, [new.scheduling.cluster_wide for _, new in watcher.reloaded]) == ([], [True])

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

    @pytest.mark.parametrize("text", ["#" * (MAX_BYTES + 1), "".join(f"unknown{n}: 1\n" for n in range(50_000))])
    async def test_a_file_without_end_is_one_bounded_report(self, watcher: RunningFileWatcher, text: str) -> None:
        before = watcher.file.current
        await watcher.settle(text)
        (refused,) = watcher.refused
        assert watcher.file.current is before
        assert len(str(refused).splitlines()) <= MAX_MISTAKES + 1

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
        assert not watcher.file.current.scheduling.cluster_wide

    async def test_taking_a_bad_change_back_is_no_change(self, watcher: RunningFileWatcher) -> None:
        before, text = watcher.file.current, watcher.path.read_text()
        await watcher.settle(BAD)
        await watcher.settle(text)
        assert watcher.file.current is before
        assert watcher.file.problem is None
        assert watcher.reloaded == []

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
        assert watcher.file.current.scheduling.cluster_wide

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
        assert watcher.file.current.scheduling.cluster_wide

    async def test_listeners_and_certificates_wait_for_the_next_start(self, watcher: RunningFileWatcher) -> None:
        at_start = watcher.file.current.server
        moved = "server: {listen: 'a:1', maxInFlight: 9}\ntls: {certFile: c, keyFile: k}\n"
        await watcher.settle(GOOD + moved)

        assert watcher.restart == [["server.listen", "server.maxInFlight", "tls.certFile", "tls.keyFile", "tls.mode"]]
        assert watcher.file.current.server == at_start
        assert watcher.file.current.scheduling.cluster_wide
        assert watcher.reloaded[0][1] is watcher.file.current

        await watcher.settle(GOOD + moved + "# c\n")
        assert (len(watcher.reloaded), len(watcher.restart)) == (2, 1)

        await watcher.settle(GOOD)
        assert len(watcher.restart) == 1

        await watcher.settle("server: {opsListen: 'a:1'}")
        assert watcher.restart[1:] == [["server.opsListen"]]

        await watcher.settle("audit: {keep: 7}")
        assert watcher.restart[2:] == [["audit"]]

    async def test_nobody_needs_to_listen(self, watcher: RunningFileWatcher) -> None:
        quiet = SettingsFile(watcher.path)
        for text in (BAD, "server: {listen: 'a:1'}"):
            watcher.path.write_text(text)
            await quiet.poll()
            await quiet.poll()
        assert quiet.current.digest == hashlib.sha256(b"server: {listen: 'a:1'}").hexdigest()

    async def test_watch_polls_until_cancelled(self, watcher: RunningFileWatcher) -> None:
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


class TestApart:
    """Validation in a process of its own, as the server has it."""

    @pytest.mark.parametrize("name", ["example.yaml", "full.yaml"])
    def test_the_settings_are_those_of_this_process(self, name: str) -> None:
        data = (CORPUS / name).read_bytes()
        assert parse_apart(data, name) == parse(data, name)

    def test_mistakes_come_with_their_lines(self) -> None:
        data = b"scheduling: {clusterWide: 3}\nunknown: 1\n"
        with pytest.raises(InputErrors) as here:
            parse(data, "s.yaml")
        with pytest.raises(InputErrors) as apart:
            parse_apart(data, "s.yaml")
        assert (str(apart.value), apart.value.mistakes[0].where) == (str(here.value), "s.yaml:1")

    def test_ctrl_c_is_for_the_server_alone(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """It ended the process that validates too, and the server with a traceback."""
        broken = tmp_path / "python"
        broken.write_text(f"#!{sys.executable}\nimport os\nraise SystemExit(f'session {{os.getsid(0)}}')\n")
        broken.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(broken))
        with pytest.raises(ValidationFailed, match="exit status 1; session ") as caught:
            parse_apart(b"{}", "s.yaml")
        assert int(str(caught.value).rpartition(" ")[2]) != os.getsid(0)

    async def test_a_process_that_ends_without_an_answer_is_tried_again(
        self, watcher: RunningFileWatcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        watcher.file._parse = parse_apart
        broken = tmp_path / "python"
        broken.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
        broken.chmod(0o755)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(broken))
            with pytest.raises(ValidationFailed, match="exit status 3; no memory"):
                await watcher.settle(GOOD)
        assert not watcher.reloaded
        await watcher.settle()
        assert watcher.file.current.scheduling.cluster_wide
