"""`make dist`: what a release consists of, and that its list of components is complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.packaging.distributions import ROOT, run
from tidemark.runtime.artifacts import lock_entries

pytestmark = pytest.mark.slow
OF_CONTRIBUTORS = {"dist", "lint", "test"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    run([sys.executable, str(ROOT / "tools" / "make_dist.py"), str(folder)])
    return folder


@pytest.fixture(scope="module")
def bill(release: Path) -> dict[str, Any]:
    (path,) = release.glob("*.cdx.json")
    text = path.read_text("utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found: dict[str, Any] = json.loads(text)
    return found


def test_every_file_of_a_release_has_its_hash(release: Path) -> None:
    names = {line.split()[1] for line in (release / "SHA256SUMS").read_text("utf-8").splitlines()}
    assert names == {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    assert {name.partition("-0")[0] for name in names} == {"tidemark_cdc"}
    assert len(names) == 4
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release, check=True, capture_output=True)


def test_the_bill_of_materials_has_every_package_that_a_user_needs(bill: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].keys() - OF_CONTRIBUTORS
    texts = project["dependencies"] + [text for extra in extras for text in project["optional-dependencies"][extra]]
    versions = {part["name"]: Version(part["version"]) for part in bill["components"] if part["purl"].startswith("pkg:pypi/")}
    assert len(texts) > 20
    for wanted in map(Requirement, texts):
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted
    assert all(part["hashes"] for part in bill["components"])
    assert bill["metadata"]["component"]["name"] == project["name"]


def test_the_bill_of_materials_has_every_jar_of_the_lock_file(bill: dict[str, Any]) -> None:
    found = {(part.get("group"), part["name"], part["version"], part["hashes"][0]["content"]) for part in bill["components"]}
    wanted = {(None if one.parts[0] == "pypi" else one.parts[0], *one.parts[1:3], one.sha256) for one in lock_entries()}
    assert len(wanted) > 8
    assert wanted <= found


def test_every_component_is_needed_by_another(bill: dict[str, Any]) -> None:
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    reached, waiting = set(), [bill["metadata"]["component"]["bom-ref"]]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += needs[name]
    assert {part["bom-ref"] for part in bill["components"]} <= reached


def test_the_requirements_are_the_packages_of_the_bill_with_their_hashes(release: Path, bill: dict[str, Any]) -> None:
    (path,) = release.glob("*-requirements.txt")
    locked = dict(re.findall(r"^(\S+==\S+) --hash=sha256:([0-9a-f]{64})$", path.read_text("utf-8"), re.MULTILINE))
    packages = {
        f"{part['name']}=={part['version']}": part["hashes"][0]["content"]
        for part in bill["components"]
        if part["purl"].startswith("pkg:pypi/") and part["bom-ref"] == part["purl"]
    }
    assert locked == packages
    assert len(locked) > 40
