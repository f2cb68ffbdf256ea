"""Files of Maven repositories by Ivy, which pyspark carries, with the machine's own settings for proxies and certificates.

The lock file names each file, so no POM is read and nothing is resolved: a bundle of 46 jars costs its download and no more.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from tidemark.runtime.artifacts import Artifact, ArtifactError, run_fetcher
from tidemark.runtime.java import java_home

IVY_SETTINGS: Final = """<ivysettings>
 <settings defaultResolver="central"/>
 <caches defaultCacheDir={cache}
  artifactPattern="[organisation]__[artifact]__[revision](-[classifier]).[ext]"/>
 <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
IVY_MODULE: Final = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
 <info organisation="tidemark" module="runtime"/>
 <configurations defaultconfmapping="*->default"><conf name="default"/></configurations>
 <dependencies>
{dependencies} </dependencies>
</ivy-module>
"""


def ivy_jar() -> Path:
    """Return the Ivy that pyspark contains. Raises ArtifactError when pyspark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return jar
    raise ArtifactError(
        "pyspark is not installed in this Python; its Ivy fetches the jars. Run: pip install pyspark"
    )


def ivy_download(missing: Iterable[Artifact], folder: Path) -> None:
    """Bring the files of Maven coordinates into a folder (a `Fetcher`). Raises `ArtifactError` if it cannot."""
    lines = []
    for entry in missing:
        organisation, name, version, extension, classifier = entry.parts
        marker = f" m:classifier={quoteattr(classifier)}" if classifier else ""
        lines.append(
            f"  <dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(version)}"
            f' transitive="false"><artifact name={quoteattr(name)} type={quoteattr(extension)}'
            f" ext={quoteattr(extension)}{marker}/></dependency>\n"
        )
    settings, module = folder / "ivysettings.xml", folder / "ivy.xml"
    settings.write_text(IVY_SETTINGS.format(cache=quoteattr(str(folder))), "utf-8")
    module.write_text(IVY_MODULE.format(dependencies="".join(lines)), "utf-8")
    command = [
        str(java_home(17) / "bin" / "java"),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-jar",
        str(ivy_jar()),
        "-settings",
        str(settings),
        "-ivy",
        str(module),
        "-warn",
    ]
    run_fetcher(command, "Ivy", [folder / entry.file_name for entry in missing])
