"""The jars that Spark needs besides those of pyspark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tidemark.runtime.artifacts import UnavailableError, bundle_files

SPARK_BUNDLES: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka": ("spark-delta",),
    "delta": ("spark-delta",),
    "delta-jdbc": ("spark-delta", "mysql-jdbc"),
}


def spark_jars(profile: str = "delta", say: Callable[[str], None] | None = None) -> list[Path]:
    """Return the jars for `spark.jars` that pyspark does not contain; fetch what is missing, check every hash.

    Profiles: "delta" (Kafka source, Avro, Delta), "delta-jdbc" (and MySQL's JDBC driver).
    """
    if profile not in SPARK_BUNDLES:
        msg = f"no jars for the profile {profile!r}; there are: {', '.join(SPARK_BUNDLES)}"
        raise UnavailableError(msg)
    return [path for bundle in SPARK_BUNDLES[profile] for path in bundle_files(bundle, say)]


if __name__ == "__main__":  # `python -m tidemark.runtime.jars`: an image fetches them when it is built
    for path in spark_jars("delta-jdbc", print):
        print(path)
