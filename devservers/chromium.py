"""A headless Chromium with its libraries and fonts, for the tests of the page: nothing of it is installed.

The program is the headless shell of the npm package `@sparticuz/chromium`, which is built to run where no browser library is:
of the machine it uses the C library and libgcc only. Its fonts, and DejaVu for fixed width and symbols, are the only ones it sees,
so that text has the same shape on every machine.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from devservers.bundles import bundle_entries
from devservers.npm_packages import npm_files
from devservers.processes import DevServerError
from tidemark.runtime.artifacts import build_once, cache_folder, unpack

BUNDLE: Final = "chromium"
DEJAVU: Final = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSansMono-Bold")
BLOCK_BYTES: Final = 1 << 20
# Chromium asks for the families on the left; what a family does not have comes from the next.
FAMILIES: Final = {
    "sans-serif": ("Open Sans", "DejaVu Sans"),
    "serif": ("Open Sans", "DejaVu Sans"),
    "system-ui": ("Open Sans", "DejaVu Sans"),
    "monospace": ("DejaVu Sans Mono",),
}
FONTS: Final = (
    '<?xml version="1.0"?>\n<!DOCTYPE fontconfig SYSTEM "fonts.dtd">\n<fontconfig>\n'
    ' <dir prefix="relative">fonts</dir>\n <cachedir prefix="xdg">fontconfig</cachedir>\n'
    + "".join(
        f' <alias binding="same"><family>{asked}</family><prefer>'
        f"{''.join(f'<family>{family}</family>' for family in given)}</prefer></alias>\n"
        for asked, given in FAMILIES.items()
    )
    + "</fontconfig>\n"
)


@dataclass(frozen=True, slots=True)
class Chromium:
    """An unpacked browser: `folder` has the program, its libraries and its fonts."""

    folder: Path

    @property
    def executable(self) -> Path:
        """The headless shell. As root it needs `--no-sandbox`."""
        return self.folder / "chromium"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of this process, with its libraries and fonts in place of the machine's."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder / "lib"),
            "FONTCONFIG_FILE": str(self.folder / "fonts.conf"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }


def chromium(say: Callable[[str], None]) -> Chromium:
    """Return the browser; fetch and unpack it once (75 MB, and 206 MB unpacked).

    Raises ArtifactError when it cannot be fetched, DevServerError when the package `brotli` is not installed.
    """
    identity = hashlib.sha256("".join([FONTS, *(entry.sha256 for entry in bundle_entries(BUNDLE))]).encode()).hexdigest()

    def build(target: Path) -> None:
        program, dejavu = npm_files(BUNDLE, say)
        say(f"{BUNDLE}: unpacking")
        with tarfile.open(program) as archive, (target / "chromium").open("wb") as executable:
            for block in _decompressed(_member(archive, "bin/chromium.br")):
                executable.write(block)
            for part in ("al2023", "fonts"):  # libraries, fonts
                content = b"".join(_decompressed(_member(archive, f"bin/{part}.tar.br")))
                with tarfile.open(fileobj=io.BytesIO(content)) as files:
                    unpack(files, target)
        (target / "chromium").chmod(0o755)
        with tarfile.open(dejavu) as archive:
            for face in DEJAVU:
                (target / "fonts" / f"{face}.ttf").write_bytes(_member(archive, f"ttf/{face}.ttf").read())
        (target / "fonts.conf").write_text(FONTS, "utf-8")
        (target / "cache").mkdir()

    return Chromium(build_once(cache_folder() / "trees" / f"{BUNDLE}-{identity[:12]}", build))


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(f"package/{name}")
    if found is None:  # a folder
        raise DevServerError(f"{BUNDLE}: {name} of the package is not a file; another version of it is unpacked in another way")
    return found


def _decompressed(packed: IO[bytes]) -> Iterator[bytes]:
    try:
        import brotli
    except ImportError as error:
        raise DevServerError("the package brotli is missing in this Python. Run: pip install brotli") from error
    decompressor = brotli.Decompressor()
    while block := packed.read(BLOCK_BYTES):
        yield decompressor.process(block)
