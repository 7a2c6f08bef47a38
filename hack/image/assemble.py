"""Run in the Dockerfile: puts what the image holds under a directory, and nothing else: no shell, no package manager.

The interpreter is taken from the base image, with the shared libraries that it, and the dependencies, are linked with.
Everything is compiled to bytecode, since a replica has a read-only file system and would compile at every start.
Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

USER = 65532
# Parts of the standard library that no command imports: for tests, terminals, desktops and databases. With their
# extension modules, the libraries of those are left out, too. (The client imports pydoc, and pydoc _pyrepl since 3.13.)
LEFT_OUT = (
    *("ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "venv", "xmlrpc"),
    *("test", "unittest", "doctest.py", "_test*", "_ctypes_test*", "_xxtestfuzz*", "xxlimited*", "xxsubtype*"),
    *("curses", "_curses*", "readline*", "tkinter", "_tkinter*", "turtle.py", "turtledemo"),
    *("dbm", "_dbm*", "_gdbm*", "sqlite3", "_sqlite3*", "__phello__"),
)
FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/nonexistent\nwebhook:x:{USER}:{USER}:kubevirt-webhook:/:/nonexistent\n",
    "etc/group": f"root:x:0:\nwebhook:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
# CA certificates and OpenSSL's configuration, where the base image has them; links are followed.
COPIED = ("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/openssl.cnf", "/etc/ld.so.cache")
LINKED = {
    "usr/lib/ssl/cert.pem": "/etc/ssl/certs/ca-certificates.crt",
    "usr/lib/ssl/openssl.cnf": "/etc/ssl/openssl.cnf",
}


def assemble(root: Path, environment: Path) -> None:
    """Copy the interpreter and all shared libraries.

    Args:
        root: the directory that becomes the root of the image.
        environment: the virtual environment of the program, whose libraries are needed, too.
    """
    prefix = Path(sys.base_prefix)
    library = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    target = _under(root, library)
    ignore = shutil.ignore_patterns(*LEFT_OUT, "__pycache__", "config-*", "*.a")
    shutil.copytree(library, target, ignore=ignore, symlinks=True)
    interpreter = Path(sys.executable).resolve()
    _copy(root, interpreter)
    for name in ("python3", "python"):
        _link(root, interpreter.parent / name, interpreter.name)
    needed = [interpreter, *target.rglob("*.so*"), *environment.rglob("*.so*")]
    for library_file in sorted(shared_libraries(needed)):
        _copy(root, library_file)
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    for name in COPIED:
        if Path(name).exists():
            _copy(root, Path(name))
    for link, to in LINKED.items():
        if Path(to).exists():
            _link(root, Path("/", link), to)
    compile_all(root, target)


def compile_all(root: Path, directory: Path) -> None:
    """Compile to bytecode that is taken as it is, so that two builds of the same sources are the same bytes.

    Args:
        root: the directory that becomes the root of the image; tracebacks do not name it.
        directory: a directory in it.
    """
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(directory, quiet=1, workers=0, invalidation_mode=mode, stripdir=root):
        raise SystemExit(f"assemble: not everything in {directory} could be compiled")


def shared_libraries(files: Iterable[Path]) -> set[Path]:
    """The shared libraries that files are linked with, by the names under which the loader looks for them."""
    found: set[Path] = set()
    for file in files:
        done = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False)
        found |= parse_ldd(done.stdout)
    # Loaded by name, when a thread ends.
    found |= {each for known in set(found) for each in known.parent.glob("libgcc_s.so.1")}
    return found


def parse_ldd(output: str) -> set[Path]:
    """The paths in what ldd prints; names of libraries without a path are the kernel's, or are missing."""
    return {Path(path) for path in re.findall(r"(?:=>\s|^\s+)(/\S+) \(0x", output, re.MULTILINE)}


def _under(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _copy(root: Path, file: Path) -> None:
    target = _under(root, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, target, follow_symlinks=True)


def _link(root: Path, link: Path, to: str) -> None:
    target = _under(root, link)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(target):
        target.symlink_to(to)


def main() -> None:
    """``assemble.py ROOT ENVIRONMENT``, or ``assemble.py --compile ROOT``."""
    if sys.argv[1] == "--compile":
        compile_all(Path(sys.argv[2]), Path(sys.argv[2]))
    else:
        assemble(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
