"""Debian packages unpacked into the cache: shared libraries a server's binary misses, and whole servers.

Package sources and their signatures are the machine's own apt configuration; nothing is installed and no
administrator's right is needed. Where the machine's package index is absent, a private one is fetched. A
server of another Debian release comes with all libraries it needs and is started by its own dynamic loader,
so it does not matter how old the machine's are.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from devservers.processes import DevServerError
from tidemark.runtime.artifacts import build_once, cache_folder, exclusive

log = logging.getLogger(__name__)

# In a server's closure by dependency only; not one of them is needed to run it.
NOT_NEEDED: Final = (
    "perl",
    "libperl",
    "fonts-",
    "mariadb-common",
    "adduser",
    "debconf",
    "mysql-client",
    "tzdata",
)
LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
DEBIAN_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
LOADER: Final = "ld-linux-x86-64.so.2"
# soname -> packages that have it, by the release of the distribution (the first that exists is used)
PACKAGES: Final[dict[str, tuple[str, ...]]] = {
    "libaio.so.1": ("libaio1t64", "libaio1"),
    "libnuma.so.1": ("libnuma1",),
    "libncurses.so.5": ("libncurses5",),
    "libtinfo.so.5": ("libtinfo5",),
    "libcrypt.so.1": ("libcrypt1",),
    "libsystemd.so.0": ("libsystemd0",),
    "libcap.so.2": ("libcap2",),
    "libgcrypt.so.20": ("libgcrypt20",),
    "libgpg-error.so.0": ("libgpg-error0",),
    "liblz4.so.1": ("liblz4-1",),
    "liblzma.so.5": ("liblzma5",),
    "libzstd.so.1": ("libzstd1",),
    "libstdc++.so.6": ("libstdc++6",),
    "libgcc_s.so.1": ("libgcc-s1",),
    "libatomic.so.1": ("libatomic1",),
}


def missing_libraries(binary: Path, folders: Sequence[Path] = ()) -> list[str]:
    """Sonames that the dynamic loader does not find, `folders` searched first."""
    env = dict(os.environ)
    if folders:
        env["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, folders))
    done = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False, env=env)
    return re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)


def library_folders(binary: Path, say: Callable[[str], None]) -> list[Path]:
    """Folders for LD_LIBRARY_PATH so that `binary` starts; [] when the machine has everything.

    Raises DevServerError naming what is missing when apt cannot bring it.
    """
    folders: list[Path] = []
    for _ in range(4):  # a library may itself need another
        missing = missing_libraries(binary, folders)
        if not missing:
            return folders
        folders.extend([library(soname, say) for soname in missing])
    msg = f"{binary.name} misses shared libraries: {', '.join(missing)}; install them and retry"
    raise DevServerError(msg)


def library(soname: str, say: Callable[[str], None]) -> Path:
    """Return a folder with that shared library from its package; raises DevServerError when apt cannot fetch it."""
    names = PACKAGES.get(soname)
    if names is None:
        msg = f"the shared library {soname} is missing; install the package that has it and retry"
        raise DevServerError(msg)

    def build(target: Path) -> None:
        say(f"{soname}: not on this machine, taking it from its package")
        _download_any(names, soname, target)
        unpacked = target / "x"
        _unpack(target, unpacked)
        found = next((p for p in sorted(unpacked.rglob(f"{soname}*")) if p.is_file()), None)
        if found is None:
            msg = f"the package {names[0]} has no {soname}; install {soname} and retry"
            raise DevServerError(msg)
        # packages may add a suffix of their own (libaio.so.1t64); the binary wants the plain name
        shutil.copyfile(found.resolve(), target / soname)
        shutil.rmtree(unpacked)

    return build_once(cache_folder() / "trees" / f"lib-{soname}", build)


def _unpack(packages: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for package in sorted(packages.glob("*.deb")):
        done = subprocess.run(
            ["dpkg", "-x", str(package), str(target)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            msg = f"cannot unpack {package.name}: {done.stderr.strip()}"
            raise DevServerError(msg)
        package.unlink()


def _download_any(names: tuple[str, ...], soname: str, folder: Path) -> None:
    if shutil.which("apt-get") is None:
        msg = f"the shared library {soname} is missing and there is no apt-get; install it and retry"
        raise DevServerError(msg)
    said = ""
    for index in (list, private_index):
        options = index()
        for name in names:
            done = subprocess.run(
                ["apt-get", "-q", *options, "download", name],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0 and any(folder.glob("*.deb")):
                return
            said = done.stderr.strip()
    msg = (
        f"the shared library {soname} is missing and apt-get cannot download {' or '.join(names)};"
        f" install it and retry. apt-get says: {said[-1000:]}"
    )
    raise DevServerError(msg)


def private_index() -> list[str]:
    """Options of apt for an index of our own, made from the machine's sources, the machine's untouched."""
    folder = cache_folder() / "apt"
    options = [
        "-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache",
        "-o", "APT::Sandbox::User=root",
    ]  # fmt: skip
    with exclusive("apt"):
        if not (folder / "done").exists():
            (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
            (folder / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
            done = subprocess.run(
                ["apt-get", "-q", *options, "update"], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                msg = f"apt-get cannot read the package index: {done.stderr.strip()[-1000:]}"
                raise DevServerError(msg)
            (folder / "done").touch()
    return options


def suite_root(name: str, suite: str, package: str, say: Callable[[str], None]) -> Path:
    """Return the files of `package` of a Debian release and of all it depends on, unpacked in the cache.

    Raises DevServerError where the machine's apt does not use a Debian mirror, or the package is unavailable.
    """

    def build(target: Path) -> None:
        say(f"{name}: taking {package} and its libraries from Debian {suite}")
        options = _suite_index(suite)
        archives = target / "archives"
        (archives / "partial").mkdir(parents=True)
        _apt(
            [*options, "-o", f"Dir::Cache::Archives={archives}/", "install", "-y", "--no-install-recommends",
             "--download-only", package], f"{package} of {suite}",
        )  # fmt: skip
        say(f"{name}: unpacking")
        for archive in sorted(archives.glob("*.deb")):
            if archive.name.startswith(NOT_NEEDED):
                archive.unlink()
        _unpack(archives, target / "root")
        shutil.rmtree(archives)
        for part in ("doc", "man", "locale", "info", "lintian"):
            shutil.rmtree(target / "root" / "usr" / "share" / part, ignore_errors=True)

    return build_once(cache_folder() / "trees" / f"{name}-{suite}", build) / "root"


def one_package(name: str, suite: str, package: str, say: Callable[[str], None]) -> Path:
    """Return the files of a package of a Debian release without what it depends on; raises as `suite_root`."""

    def build(target: Path) -> None:
        say(f"{name}: taking {package} from Debian {suite}")
        archives = target / "archives"
        archives.mkdir()
        options = [*_suite_index(suite), "-o", f"Dir::Cache::Archives={archives}/"]
        (archives / "partial").mkdir()
        done = subprocess.run(
            ["apt-get", "-q", *options, "download", package],
            cwd=archives, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            msg = f"apt-get cannot bring {package} of {suite}: {done.stderr.strip()[-1500:]}"
            raise DevServerError(msg)
        _unpack(archives, target / "root")

    return build_once(cache_folder() / "trees" / f"{name}-{suite}", build) / "root"


def with_own_loader(root: Path, program: str) -> tuple[str, ...]:
    """Return the command that starts a program of `suite_root` with the libraries it was built for."""
    loader = next((p for p in (root / "usr/lib64" / LOADER, root / LIBRARIES / LOADER) if p.exists()), None)
    if loader is None:
        msg = f"{root} has no {LOADER}; delete the folder and retry"
        raise DevServerError(msg)
    return (
        str(loader),
        "--argv0",
        str(root / program),
        "--library-path",
        str(root / LIBRARIES),
        str(root / program),
    )


def _debian_mirror() -> str:
    """Return the address of the mirror this machine's apt takes its own Debian release from."""
    release = {}
    for line in Path("/etc/os-release").read_text("utf-8").splitlines():
        key, _, value = line.partition("=")
        release[key] = value.strip('"')
    codename = release.get("VERSION_CODENAME", "")
    if release.get("ID") == "debian" and shutil.which("apt-get"):
        listed = _apt(["indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"], "")
        for line in listed.splitlines():
            address, _, suite = line.partition(" ")
            if suite in (codename, "stable", "testing", "sid", "unstable"):
                return address.rstrip("/")
    raise DevServerError(
        "this server comes from Debian's packages, and this machine's apt does not use a"
        " Debian mirror; use another server (mysql80 needs none) or give the address of a running one"
    )


def _suite_index(suite: str) -> list[str]:
    """Apt options for one release only, with no package counted as installed; its index is fetched once."""
    folder = cache_folder() / f"apt-{suite}"
    with exclusive(f"apt-{suite}"):
        for part in ("lists/partial", "cache/archives/partial", "etc/preferences.d"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        sources = folder / "sources.list"
        options = [
            "-o", f"Dir::Etc={folder}/etc", "-o", f"Dir::Etc::SourceList={sources}",
            "-o", "Dir::Etc::SourceParts=/dev/null",
            "-o", f"Dir::State={folder}", "-o", f"Dir::State::Lists={folder}/lists",
            "-o", f"Dir::State::status={folder}/status", "-o", f"Dir::Cache={folder}/cache",
            "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
            # a mirror's copy of sid may be weeks old; signatures are checked all the same
            "-o", "Acquire::Check-Valid-Until=false",
            "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
        ]  # fmt: skip
        if not (folder / "done").exists():
            sources.write_text(f"deb [signed-by={DEBIAN_KEYRING}] {_debian_mirror()} {suite} main\n", "utf-8")
            _apt([*options, "update"], f"the index of {suite}")
            (folder / "done").touch()
    return options


def _apt(arguments: list[str], what: str) -> str:
    done = subprocess.run(["apt-get", "-q", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"apt-get cannot bring {what}: {(done.stderr or done.stdout).strip()[-1500:]}"
        raise DevServerError(msg)
    return done.stdout
