"""Each side runs without what only the other one needs: the import contracts, checked at run time."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from schemas.notifications import signal_rejected
from tests.support.encoded_notifications import as_avro

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


def test_a_merge_job_alone_reads_answers_in_avro() -> None:
    """Of the packages of all extras only those of `spark` are there: `tidemark signal --wait` needs no other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {extra: {_name(one) for one in needed} for extra, needed in project["optional-dependencies"].items()}
    others = set().union(*extras.values()) - extras["spark"] - {"packaging"}  # which the others need, too
    missing = [module for module, owners in packages_distributions().items() if {_name(one) for one in owners} & others]
    answer = as_avro(signal_rejected("shop", "id-1", "log", 7, "no text"))[1]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r})); "
        f"from tidemark.api.notification_reader import parse; print(parse({answer!r}).id)"
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.stdout == "id-1\n", done.stderr
    assert {"zstandard", "pyiceberg", "prometheus_client"} <= set(missing)


def _name(requirement: str) -> str:
    """The project that a requirement names, as indexes compare it."""
    project = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert project is not None
    return re.sub(r"[-_.]+", "-", project[0]).lower()
