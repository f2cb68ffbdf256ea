"""Helm, built from its Go module once and kept in the cache folder, and what it makes of the chart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.packaging.distributions import ROOT
from tidemark.runtime.artifacts import build_once, cache_folder

CHART: Final = ROOT / "docker" / "helm" / "tidemark"
MODULE: Final = "helm.sh/helm/v3@v3.22.0"
SUM: Final = "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU="
"""The hash of the module, as Go calculates it; the module's own go.sum has those of what it needs."""
_BUILD_S: Final = 1800


@cache
def helm() -> str:
    """The path of the program. Fails where there is no Go to build it with."""
    folder = build_once(cache_folder() / "tools" / MODULE.replace("/", "-"), _build)
    return str(folder / "helm")


def _build(folder: Path) -> None:
    assert shutil.which("go"), f"{MODULE} is built with Go, which is not installed (Debian: apt install golang)"
    found = json.loads(_go(folder, "mod", "download", "-json", MODULE))
    assert found["Sum"] == SUM, f"{MODULE} is not the expected module: {found['Sum']} instead of {SUM}"
    sources = folder / "sources"
    shutil.copytree(found["Dir"], sources, copy_function=shutil.copyfile)
    _go(sources, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(folder / "helm"), "./cmd/helm")
    shutil.rmtree(sources)


def _go(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(
        ["go", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_BUILD_S
    )
    assert done.returncode == 0, f"go {' '.join(arguments)}: {done.stdout[-1000:]}{done.stderr[-2000:]}"
    return done.stdout


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What Helm does with the arguments, without a cluster."""
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run([helm(), *arguments], env=environment, capture_output=True, text=True, check=False)


def render(values: str, kubernetes: str, *more: str) -> list[dict[str, Any]]:
    """The objects of the chart with a file of values of `ci/`, for a version of Kubernetes."""
    file = CHART / "ci" / f"{values}-values.yaml"
    done = run_helm("template", "demo", str(CHART), "--kube-version", kubernetes, "--values", str(file), *more)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]
