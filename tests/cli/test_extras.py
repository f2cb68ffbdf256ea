"""Each side runs without what only the other one needs: the import contracts, checked at run time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("modules", "missing"),
    [
        (
            "producer.app, tidemark.commands.signal, tidemark.api.observe, conformance",
            "pyspark delta deltalake pyarrow pandas",
        ),
        (
            "spark_jobs.jobs.merge_job, tidemark.commands.merge, tidemark.runtime",
            "pymysql fastavro zstandard",
        ),
        ("tidemark.doctor.examination", "confluent_kafka pymysql fastavro pyspark delta deltalake pyarrow pandas numba psycopg"),
        ("spark_jobs.loads.chunk_source", "confluent_kafka zstandard prometheus_client pyspark delta deltalake pandas"),
        ("tidemark.verify, tidemark.verify.iceberg_reader", "confluent_kafka numba pyspark delta"),
        (
            "schemas.settings, schemas.merge_rule, schemas.avro",
            "numpy yaml structlog confluent_kafka pymysql pyspark",
        ),
    ],
    ids=["producer", "spark", "doctor", "load", "verify", "schemas"],
)
def test_a_side_is_imported_without_the_packages_of_the_others(modules: str, missing: str) -> None:
    script = f"import sys; sys.modules.update(dict.fromkeys({missing.split()!r})); import {modules}"

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
