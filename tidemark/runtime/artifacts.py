"""The cache of fetched files: every one is checked against a lock file before it is used.

`artifacts.lock` beside this module names what production needs; who needs more brings a lock file of that form.

A bundle is fetched into a folder of its own beside the cache, checked and renamed, so a killed
process leaves no half file; a lock file keeps other processes waiting instead of fetching twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from schemas.errors import TidemarkError

log = logging.getLogger(__name__)

LOCK_FILE: Final = Path(__file__).with_name("artifacts.lock")
PROGRESS_SECONDS: Final = 2.0
ABANDONED_SECONDS: Final = 6 * 3600.0

class UnavailableError(TidemarkError):
    """A program or a file is not available on this machine; the message says what to do."""


class ArtifactError(UnavailableError):
    """A file could not be fetched, or it is not the one that the lock file names."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One line of a lock file. `coordinate` is `org:name:version[:extension[:classifier]]`."""

    bundle: str
    coordinate: str
    sha256: str
    size: int

    @property
    def parts(self) -> tuple[str, str, str, str, str]:
        """Organisation, name, version, extension, classifier ("" for none)."""
        organisation, name, version, *rest = self.coordinate.split(":")
        extension, classifier = (*rest, "", "")[:2]
        return organisation, name, version, extension or "jar", classifier

    @property
    def file_name(self) -> str:
        """Unique in the cache: two versions of one jar live side by side."""
        organisation, name, version, extension, classifier = self.parts
        name = name.replace("/", "+")  # npm's scopes
        return f"{organisation}__{name}__{version}{'-' + classifier if classifier else ''}.{extension}"


Fetcher = Callable[[list[Artifact], Path], None]
"""Brings files into a folder, each under its `file_name`. Raises ArtifactError when it cannot."""


@cache
def lock_entries(lock: Path = LOCK_FILE) -> tuple[Artifact, ...]:
    """Return all of a lock file: blank lines and `#` comments, else `bundle coordinate sha256 size`."""
    entries = []
    for number, line in enumerate(lock.read_text("utf-8").splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        if len(fields) != 4:
            raise ArtifactError(f"{lock} line {number}: expected 4 fields, found {len(fields)}")
        entries.append(Artifact(fields[0], fields[1], fields[2], int(fields[3])))
    return tuple(entries)


def bundle_entries(bundle: str, lock: Path = LOCK_FILE) -> tuple[Artifact, ...]:
    """Return the files of one bundle. Raises ArtifactError for a name that the lock file does not have."""
    found = tuple(entry for entry in lock_entries(lock) if entry.bundle == bundle)
    if not found:
        names = sorted({entry.bundle for entry in lock_entries(lock)})
        raise ArtifactError(f"{lock} has no bundle {bundle!r}; it has: {', '.join(names)}")
    return found


def cache_folder() -> Path:
    """Return `$TIDEMARK_CACHE`, else `~/.cache/tidemark` (or under `$XDG_CACHE_HOME`); make it when it is missing."""
    given = os.environ.get("TIDEMARK_CACHE")
    if given:
        folder = Path(given).expanduser().absolute()
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Let only one process (and thread) at a time work on the part of the cache called `name`."""
    folder = cache_folder() / "locks"
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def staging(name: str) -> Iterator[Path]:
    """Give a new folder on the cache's file system and remove it at the end: rename what is finished out of it."""
    parent = cache_folder() / "staging"
    parent.mkdir(exist_ok=True)
    for abandoned in parent.iterdir():  # by a killed process
        with contextlib.suppress(OSError):
            if time.time() - abandoned.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(abandoned, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`; `build` makes it under a temporary name, and it is renamed when it is complete."""
    if folder.is_dir():
        return folder
    with exclusive(folder.name):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with staging(folder.name) as temporary:
                build(temporary)
                temporary.rename(folder)
                temporary.mkdir()  # for the clean-up of `staging`
    return folder


def unpack(tar: tarfile.TarFile, target: Path) -> None:
    """Extract an archive (checked by hash before), with the safe filter where this Python has it (3.11.4)."""
    if hasattr(tarfile, "data_filter"):
        tar.extraction_filter = tarfile.data_filter
    tar.extractall(target)  # noqa: S202


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(path: Path, artifact: Artifact, advice: str) -> None:
    """Raise ArtifactError with the file and the expected hash unless `path` is exactly that artifact."""
    actual = sha256_of(path)
    if actual != artifact.sha256:
        raise ArtifactError(
            f"{path.name} ({artifact.coordinate}) is not the expected file: expected sha256 {artifact.sha256}"
            f" ({artifact.size} bytes), found {actual} ({path.stat().st_size} bytes). {advice}"
        )


def is_bundle_here(bundle: str, lock: Path = LOCK_FILE) -> bool:
    """Return whether all files of a bundle are in the cache, so that nothing would be fetched."""
    store = cache_folder() / "artifacts"
    return all((store / entry.file_name).is_file() for entry in bundle_entries(bundle, lock))


def bundle_files(
    bundle: str, say: Callable[[str], None] | None = None, lock: Path = LOCK_FILE, fetcher: Fetcher | None = None
) -> list[Path]:
    """Return the paths of a bundle in the cache, in the order of the lock file; fetch what is missing.

    Without a `fetcher`, pip fetches them as wheels.
    Raises ArtifactError when a file cannot be fetched or is not the expected one.
    """
    entries = bundle_entries(bundle, lock)
    store = cache_folder() / "artifacts"
    store.mkdir(exist_ok=True)
    if not all((store / entry.file_name).is_file() for entry in entries):
        with exclusive(f"artifacts-{bundle}"):
            missing = [entry for entry in entries if not (store / entry.file_name).is_file()]
            if missing:
                _fetch(bundle, missing, store, say or log.info, fetcher or pip_download)
    paths = [store / entry.file_name for entry in entries]
    for path, entry in zip(paths, entries, strict=True):
        check(path, entry, f"Delete {path} and retry")
    return paths


def _fetch(bundle: str, missing: list[Artifact], store: Path, say: Callable[[str], None], fetcher: Fetcher) -> None:
    total = sum(entry.size for entry in missing)
    say(f"{bundle}: fetching {len(missing)} file(s), {total / 1e6:.1f} MB")
    begin = time.monotonic()
    with staging(bundle) as folder:
        with _progress(bundle, folder, total, say):
            fetcher(missing, folder)
        for entry in missing:
            fetched = folder / entry.file_name
            check(
                fetched, entry, "The repository, or a proxy before it, serves another file; it was not kept"
            )
            fetched.rename(store / entry.file_name)
    say(f"{bundle}: fetched in {time.monotonic() - begin:.1f} s")


@contextlib.contextmanager
def _progress(bundle: str, folder: Path, total: int, say: Callable[[str], None]) -> Iterator[None]:
    """Report the size of the growing files: no fetching program reports its progress to a pipe."""
    end = threading.Event()

    def watch() -> None:
        while not end.wait(PROGRESS_SECONDS):
            have = 0
            for path in folder.rglob("*"):
                with contextlib.suppress(OSError):
                    have += path.stat().st_size if path.is_file() else 0
            say(f"{bundle}: {have / 1e6:.1f} of {total / 1e6:.1f} MB ({min(99, 100 * have // total)} %)")

    thread = threading.Thread(target=watch, name=f"progress-{bundle}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def pip_download(missing: Iterable[Artifact], folder: Path) -> None:
    """Download wheels; they are named `pypi:<project>:<version>:<rest of the wheel's file name>`."""
    entries = list(missing)
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--dest", str(folder), *(f"{e.parts[1]}=={e.parts[2]}" for e in entries),
    ]  # fmt: skip
    run_fetcher(command, "pip", [])
    for entry in entries:
        for wheel in folder.glob(f"{entry.parts[1]}-{entry.parts[2]}-*.whl"):
            wheel.rename(folder / entry.file_name)
    require([folder / entry.file_name for entry in entries], "pip", "")


def run_fetcher(command: list[str], tool: str, wanted: Iterable[Path]) -> None:
    """Run a fetching program.

    Raises ArtifactError with the end of its output when it fails or leaves a wanted file out.
    """
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ArtifactError(f"{tool} cannot be started: {error}") from error
    said = "\n".join(
        line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(".....")
    )[-3000:]
    if done.returncode != 0:
        raise ArtifactError(f"{tool} ended with status {done.returncode}:\n{said}")
    require(wanted, tool, said)


def require(wanted: Iterable[Path], tool: str, said: str) -> None:
    """Raise ArtifactError with the names of the files that are missing."""
    absent = [path.name for path in wanted if not path.is_file()]
    if absent:
        raise ArtifactError(f"{tool} did not fetch {', '.join(absent)}; is the network reachable?\n{said}")
