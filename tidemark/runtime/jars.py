"""The jars that Spark needs besides those of pyspark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tidemark.runtime.artifacts import UnavailableError, bundle_files, is_bundle_here
from tidemark.runtime.ivy import ivy_download

BASE_BUNDLES: Final = ("spark-delta",)
"""The Kafka source, Avro and Delta: every merge job has them."""
SINK_BUNDLES: Final[Mapping[str, tuple[str, ...]]] = {
    "delta": (),
    "iceberg": ("spark-iceberg",),
    "postgresql": (),
    "mysql": (),
    "mariadb": (),
    "files": (),
    "kafka": (),
}
"""What the sinks of a type need besides."""


def spark_jars(types: Iterable[str] = ("delta",), say: Callable[[str], None] | None = None) -> list[Path]:
    """Return the jars for `spark.jars` that pyspark does not contain; fetch what is missing, check every hash.

    `types` are the types of the sinks; `UnavailableError` for one that has no jars here.
    """
    return [path for bundle in _bundles(types) for path in bundle_files(bundle, say, fetcher=ivy_download)]


def are_jars_here(types: Iterable[str]) -> bool:
    """Return whether `spark_jars` would fetch nothing for these types."""
    return all(is_bundle_here(bundle) for bundle in _bundles(types))


def _bundles(types: Iterable[str]) -> list[str]:
    bundles = list(BASE_BUNDLES)
    for kind in types:
        if kind not in SINK_BUNDLES:
            raise UnavailableError(f"no jars for the sink type {kind!r}; there are: {', '.join(SINK_BUNDLES)}")
        bundles += [bundle for bundle in SINK_BUNDLES[kind] if bundle not in bundles]
    return bundles


if __name__ == "__main__":  # `python -m tidemark.runtime.jars`: an image fetches them when it is built
    for path in spark_jars(SINK_BUNDLES, print):
        print(path)
