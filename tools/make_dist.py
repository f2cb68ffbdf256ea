"""Make what a release consists of: `python tools/make_dist.py [FOLDER]`, by default `dist/`.

* the source archive, and the wheel that is built from it
* `<name>-requirements.txt`: every package that the wheel needs with all extras of a user, with version and hash
* `<name>.cdx.json`: the same packages and the jars that `tidemark merge` fetches, as an SBOM in the format CycloneDX
* `SHA256SUMS` of all these

Versions are what pip chooses on this platform with this Python; both are named in the SBOM. The jars that the package pyspark
contains are part of that component.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
JARS: Final = ROOT / "tidemark" / "runtime" / "artifacts.lock"
OF_CONTRIBUTORS: Final = frozenset({"dist", "lint", "test"})


def main() -> None:
    """Make all files; what a run before left is replaced."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("tidemark_cdc-*"), folder / "SHA256SUMS"):
        old.unlink(missing_ok=True)
    build = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    name = "-".join(wheel.name.split("-")[:2])
    installed = resolved(wheel, extras_of_users())
    (folder / f"{name}-requirements.txt").write_text(requirements(installed, wheel), "utf-8")
    (folder / f"{name}.cdx.json").write_text(sbom(installed), "utf-8")
    files = sorted(folder.glob("tidemark_cdc-*"))
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / "SHA256SUMS").write_text(sums, "utf-8")
    for file in (*files, folder / "SHA256SUMS"):
        print(f"dist: {file.stat().st_size:>10,} bytes  {file.name}")


def extras_of_users() -> list[str]:
    """Return the extras of pyproject.toml that something at run time needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return sorted(project["optional-dependencies"].keys() - OF_CONTRIBUTORS)


def resolved(wheel: Path, extras: list[str]) -> dict[str, dict[str, Any]]:
    """Return what pip would install into an empty environment, by canonical name: its metadata, where it is, its hash."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        dry = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*pip, *dry, f"{wheel}[{','.join(extras)}]"], check=True)
        items = json.loads(report.read_text("utf-8"))["install"]
    return {canonicalize_name(item["metadata"]["name"]): item for item in items}


def requirements(installed: dict[str, dict[str, Any]], wheel: Path) -> str:
    """Return a requirements file with hashes, without the wheel itself."""
    head = (
        f"# What {wheel.name} needs with all extras, on Python {platform.python_version()}, {platform.platform(terse=True)}:\n"
        f"#   pip install --require-hashes -r <this file> && pip install --no-deps {wheel.name}\n"
    )
    return head + "".join(
        f"{name}=={item['metadata']['version']} --hash=sha256:{_sha256(item)}\n"
        for name, item in sorted(installed.items())
        if not wheel.name.startswith(name.replace("-", "_"))
    )


def sbom(installed: dict[str, dict[str, Any]]) -> str:
    """Return the SBOM: the wheel, the packages with what each depends on, and the jars."""
    components = {name: _package(name, item) for name, item in installed.items()}
    project = components["tidemark-cdc"]
    project.type = ComponentType.APPLICATION
    bom = Bom(components=[component for component in components.values() if component is not project])
    bom.metadata.component = project
    bom.metadata.properties.add(Property(name="tidemark:python", value=platform.python_version()))
    bom.metadata.properties.add(Property(name="tidemark:platform", value=platform.platform(terse=True)))
    for name, needed in _dependencies(installed).items():
        bom.register_dependency(components[name], [components[other] for other in sorted(needed)])
    for artifact in _artifacts():
        bom.components.add(artifact)
        bom.register_dependency(project, [artifact])
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _package(name: str, item: dict[str, Any]) -> Component:
    version = item["metadata"]["version"]
    purl = PackageURL("pypi", None, name, version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=_sha256(item))]
    return Component(name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl), hashes=hashes)


def _artifacts() -> list[Component]:
    """Return what the lock file of the runtime names: `bundle org:name:version[:...] sha256 bytes`."""
    lines = (line.partition("#")[0].split() for line in JARS.read_text("utf-8").splitlines())
    found = []
    for bundle, coordinate, sha256, _ in filter(None, lines):
        organisation, name, version, *_ = coordinate.split(":")
        kind = ("pypi", None) if organisation == "pypi" else ("maven", organisation)
        purl = PackageURL(*kind, name, version)
        found.append(
            Component(
                name=name,
                group=kind[1],
                version=version,
                type=ComponentType.LIBRARY,
                purl=purl,
                bom_ref=f"{bundle}:{purl}",
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
                properties=[Property(name="tidemark:bundle", value=bundle)],
            )
        )
    return found


def _dependencies(installed: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """Return what each package needs of the others, with the extras that something asks it for."""
    extras: dict[str, set[str]] = defaultdict(set)
    found: dict[str, set[str]] = defaultdict(set)
    extras["tidemark-cdc"].update(extras_of_users())
    waiting = ["tidemark-cdc"]
    while waiting:
        name = waiting.pop()
        for text in installed[name]["metadata"].get("requires_dist", ()):
            needed = Requirement(text)
            other = canonicalize_name(needed.name)
            applies = needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras[name]))
            if not applies or other not in installed:
                continue
            if other not in found[name] or needed.extras - extras[other]:
                waiting.append(other)
            found[name].add(other)
            extras[other] |= needed.extras
    return found


def _sha256(item: dict[str, Any]) -> str:
    return str(item["download_info"]["archive_info"]["hashes"]["sha256"])


if __name__ == "__main__":
    main()
