"""Docker for one run: the machine's daemon or one of our own, the compose plugin, and images for what the file names.

Where no image registry can be reached, `standin-images.sh` builds images of the same names from the package
registries. A daemon that was started here ends with the run; its images stay in the cache folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidemark.runtime.artifacts import cache_folder

_STANDINS: Final = Path(__file__).with_name("standin-images.sh")
_NAMES: Final = ("python", "temurin", "kafka", "mysql", "apicurio")
_DAEMON_STARTS_S: Final = 60
_PLUGINS: Final = ("docker-compose", "docker-buildx")


class DockerError(Exception):
    """Docker cannot be had on this machine; says what is missing and what to do."""


@contextmanager
def docker() -> Iterator[dict[str, str]]:
    """Yield the environment in which `docker compose` works and all base images are there. Raise `DockerError`."""
    folder = cache_folder() / "docker"
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="tidemark-docker-") as run, _daemon(environment, folder, Path(run)):
        _plugins(environment, folder)
        _images(environment, folder)
        yield environment


@contextmanager
def _daemon(environment: dict[str, str], folder: Path, run: Path) -> Iterator[None]:
    """Use the daemon that answers; else start one whose images are kept in `folder`."""
    if shutil.which("docker") and _succeeds(["docker", "info"], environment):
        yield
        return
    if os.getuid() != 0:
        message = "no Docker daemon answers, and only root can start one: start Docker and run this again"
        raise DockerError(message)
    if not (shutil.which("docker") and shutil.which("dockerd")):
        _install(["docker.io", "iptables"])
    socket = f"unix://{run}/docker.sock"
    with (run / "dockerd.log").open("wb") as output:
        process = subprocess.Popen(
            [
                *("dockerd", "--data-root", str(folder / "data"), "--exec-root", str(run / "exec")),
                *("-H", socket, "--pidfile", str(run / "pid")),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    environment["DOCKER_HOST"] = socket
    try:
        deadline = time.monotonic() + _DAEMON_STARTS_S
        while not _succeeds(["docker", "info"], environment):
            if process.poll() is not None or time.monotonic() > deadline:
                last = (run / "dockerd.log").read_text(errors="replace").splitlines()[-3:]
                message = f"dockerd does not start: {' '.join(last)}"
                raise DockerError(message)
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _install(packages: list[str]) -> None:
    print(f"compose: installing {', '.join(packages)}", flush=True)
    if not shutil.which("apt-get"):
        message = f"{', '.join(packages)}: not installed, and there is no apt-get to install them with"
        raise DockerError(message)
    for verb in (["update", "-qq"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", *verb], check=True, stdout=subprocess.DEVNULL)


def _plugins(environment: dict[str, str], folder: Path) -> None:
    """Fetch compose and buildx into a configuration folder of our own where the machine's Docker lacks them."""
    if all(_succeeds(["docker", plugin.removeprefix("docker-"), "version"], environment) for plugin in _PLUGINS):
        return
    config = folder / "config"
    environment["DOCKER_CONFIG"] = str(config)
    into = config / "cli-plugins"
    if all((into / plugin).exists() for plugin in _PLUGINS):
        return
    print("compose: fetching the compose and buildx plugins", flush=True)
    with tempfile.TemporaryDirectory() as work:
        # Debian's next release has them; they need no other package of it. Its index may count as expired here.
        subprocess.run(["bash", "-c", _FETCH_PLUGINS, "fetch", work, *_PLUGINS], check=True, stdout=subprocess.DEVNULL)
        into.mkdir(parents=True, exist_ok=True)
        for plugin in _PLUGINS:
            shutil.copy2(Path(work) / "root/usr/libexec/docker/cli-plugins" / plugin, into / plugin)


_FETCH_PLUGINS: Final = """
set -eu
work=$1; shift
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
[ -n "$mirror" ] || mirror=$(awk '$1 == "deb" {for (i = 2; i <= NF; i++) if ($i ~ /^http/) {print $i; exit}}' /etc/apt/sources.list)
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" > "$work/list"
options="-o Dir::Etc::SourceList=$work/list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$work/lists
 -o Dir::Cache=$work/cache -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false"
cd "$work"
apt-get $options update -qq
apt-get $options download "$@"
for package in *.deb; do dpkg -x "$package" root; done
"""


def _images(environment: dict[str, str], folder: Path) -> None:
    """Pull what the compose file names, or build stand-ins where the image registry is unreachable."""
    if _succeeds(["docker", "pull", "python:3.11-slim"], environment):
        return  # `docker compose` pulls the others
    print("compose: no image registry can be reached; stand-ins are built from the package registries", flush=True)
    environment["STANDIN_CACHE"] = str(folder / "standin")
    done = subprocess.run(["bash", str(_STANDINS), *_NAMES], env=environment, check=False)
    if done.returncode:
        message = f"the stand-in images could not be built: {_STANDINS.name} ended with {done.returncode}"
        raise DockerError(message)


def _succeeds(command: list[str], environment: dict[str, str]) -> bool:
    done = subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0
