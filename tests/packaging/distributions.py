"""Distributions built from this checkout, and environments in which nothing but what is named is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import venv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.servers import run_folder
from tidemark.runtime.artifacts import cache_folder

ROOT = Path(__file__).parents[2]
OTHER_SCHEMAS = {
    "pyproject.toml": """
        [build-system]
        requires = ["hatchling"]
        build-backend = "hatchling.build"
        [project]
        name = "other-schemas"
        version = "3.2"
        [tool.hatch.build.targets.wheel]
        packages = ["schemas", "producer"]
        """,
    "schemas/__init__.py": "OWNER = 'other-schemas'\n",
    "schemas/errors.py": "class OtherError(Exception): ...\n",
    "producer/__init__.py": "OWNER = 'other-schemas'\n",
}
"""A project with packages of the names that this repository has."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own: the packages of the test's own Python are not in it."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        venv.create(folder, with_pip=True)
        return cls(folder)

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def command(self) -> str:
        return str(self.folder / "bin" / "tidemark")

    def install(self, *requirements: str) -> None:
        # pyspark is an archive of 456 MB without a wheel: tools/setup.sh keeps the wheel that it makes.
        wheels = ["--find-links", str(cache_folder() / "wheels")]
        run([self.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile", *wheels, *requirements])

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program outside the checkout, with no variable that makes the checkout importable."""
        return subprocess.run(command, cwd=self.folder, env=bare_environment(), capture_output=True, text=True, check=False)


def bare_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TIDEMARK_SOURCE"))}


@cache
def built() -> tuple[Path, Path]:
    """The source archive of this checkout, and the wheel made of it."""
    folder = run_folder() / "dist"
    run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)])
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


@cache
def other_project() -> Path:
    """A project that installs packages called `schemas` and `producer`."""
    folder = run_folder() / "other-schemas"
    for name, text in OTHER_SCHEMAS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
    return folder


def run(command: list[str]) -> str:
    """What a program printed; fails with it when the program fails."""
    done = subprocess.run(command, env=bare_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout
