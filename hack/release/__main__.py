"""`make release VERSION=...`: first the version and the changelog, then, from the commit with them, all files."""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hack.release import ReleaseError
from hack.release.build import ReleaseBuild, build
from hack.release.image import parse_image
from hack.release.version import check_version, expected, prepare, versions

ROOT: Final = Path(__file__).resolve().parents[2]


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]} failed: {done.stderr.decode().strip()}")
    return done.stdout


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hack.release", description=__doc__)
    parser.add_argument("version", help="the version, for example 1.2.0")
    parser.add_argument(
        "--image", metavar="REPOSITORY@DIGEST", help="the image; without it no chart, bundle and manifests"
    )
    parser.add_argument("--archive", type=Path, metavar="FILE", help="the image as an OCI archive, for its SBOM")
    parser.add_argument("--source", metavar="URI", help="the repository, for the provenance (default: git's origin)")
    parser.add_argument(
        "--builder", metavar="URI", default=ReleaseBuild.builder, help="what builds, for the provenance"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="(default: dist/release-VERSION)")
    return parser.parse_args(given)


def _given_epoch() -> int | None:
    """The time that the environment sets, in seconds since 1970; None: it sets none."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given and not (given.isascii() and given.isdigit()):
        raise ReleaseError(f'SOURCE_DATE_EPOCH is "{given}", not a number of seconds since 1970; correct or unset it')
    return int(given) if given else None


def without_credentials(uri: str) -> str:
    """The address of a repository as it may be published: pipelines often clone with a token in it."""
    return re.sub(r"^(\w+://)[^/@]*@", r"\1", uri)


def _make(options: argparse.Namespace) -> None:
    version = check_version(options.version)
    if versions(ROOT) != expected(version):
        given = _given_epoch()
        moment = datetime.fromtimestamp(given, UTC) if given else datetime.now(UTC)
        changed = prepare(ROOT, version, moment.strftime("%Y-%m-%d"))
        print(f"prepared {version} in {', '.join(changed)}")
        print(f'read the changes, commit them, tag the commit with "git tag -s v{version}", and run this again')
        return
    if _git("status", "--porcelain", "--untracked-files=no").strip():
        raise ReleaseError("the working tree differs from HEAD; commit or take back the changes first")
    commit = _git("rev-parse", "HEAD").decode().strip()
    # The commit's own time, so that everyone who builds it gets the same bytes.
    epoch = _given_epoch() or int(_git("log", "-1", "--format=%ct"))
    source = options.source or f"git+{without_credentials(_git('remote', 'get-url', 'origin').decode().strip())}"
    image = parse_image(options.image) if options.image else None
    release = ReleaseBuild(version, epoch, (source, commit), image, options.archive, options.builder)
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", "HEAD"))) as archive:
            archive.extractall(directory, filter="data")
        files = build(Path(directory), release)
    output = options.output or ROOT / "dist" / f"release-{version}"
    output.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (output / name).write_bytes(data)
        print(output / name)
    if image is None:
        print("no chart, no bundle and no manifests, which name an image: give IMAGE=REPOSITORY@sha256:DIGEST")


def main(given: Sequence[str] | None = None) -> int:
    """Make a release; returns the exit status."""
    try:
        _make(_arguments(given))
    except (ReleaseError, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
