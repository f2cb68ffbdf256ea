"""The types of columns are in one table, and whatever needs a fact of a type takes it from there."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from deltalake import Schema
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import BinaryMode, DecimalMode, TimeMode, UnsignedMode, ValueModes
from schemas.types.column_facts import FACTS, Semantic
from schemas.types.connect import value_schema
from schemas.types.semantic_types import SEMANTIC_TYPES
from spark_jobs.arrow.arrow_types import arrow_type
from spark_jobs.arrow.column_readings import Leaves, reading_of
from spark_jobs.decode.spark_types import field_of
from spark_jobs.sinks.iceberg.java_tables import stored_type
from spark_jobs.sinks.relational.mysql_dialect import MySqlDialect, MySqlTraits
from spark_jobs.sinks.relational.postgres_dialect import PostgresDialect

ROOT = Path(__file__).parents[2]
PRODUCT = ("schemas", "kernels", "rowcodec", "producer", "spark_jobs", "tidemark", "conformance")
TABLES = ("schemas/types/", "rowcodec/", "tidemark/verify/")
"""The table, the compiler of rows, and verify, which is an independent witness."""
MODES = (
    *(ValueModes(decimal=mode) for mode in get_args(DecimalMode)),
    *(ValueModes(bigint_unsigned=mode) for mode in get_args(UnsignedMode)),
    *(ValueModes(binary=mode) for mode in get_args(BinaryMode)),
    *(ValueModes(time=mode) for mode in get_args(TimeMode)),
)
NO_LEAF = Leaves(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
DIALECTS = (MySqlDialect(MySqlTraits("utf8mb4_0900_bin", has_invisible=True)), PostgresDialect())
BRANCH = re.compile(r"\bColumnType\.[A-Z]|= ColumnType$", re.MULTILINE)


def test_every_column_type_and_every_semantic_type_has_a_row() -> None:
    assert set(FACTS) == set(ColumnType)
    assert set(SEMANTIC_TYPES) == set(Semantic) == {facts.semantic for facts in FACTS.values()}


def test_no_file_but_the_tables_branches_on_a_column_type() -> None:
    paths = [path.relative_to(ROOT).as_posix() for package in PRODUCT for path in (ROOT / package).rglob("*.py")]
    branching = [path for path in paths if BRANCH.search((ROOT / path).read_text("utf-8"))]

    assert [path for path in branching if not path.startswith(TABLES)] == []
    assert "schemas/types/column_facts.py" in branching  # the pattern finds them


def fields_of(kind: ColumnType) -> list[dict[str, Any]]:
    """Return the Avro fields that a column of a type has in each mode, signed and unsigned, of few digits and of many."""
    fields: dict[str, dict[str, Any]] = {}
    for modes, (precision, scale), unsigned in product(MODES, ((None, None), (6, 2), (65, 30)), (False, True)):
        column = Column("c", kind, nullable=True, unsigned=unsigned, precision=precision, scale=scale, members=("a",))
        document = json.loads(to_avro(value_schema(TableSchema("d", "t", (column,)), "p", "mysql", modes)))
        (field,) = document["fields"][0]["type"][1]["fields"]
        fields[json.dumps(field)] = field
    return list(fields.values())


@pytest.mark.parametrize("kind", ColumnType)
def test_each_sink_and_both_decoders_have_a_type_for_each_column_type(kind: ColumnType) -> None:
    for field in fields_of(kind):
        in_spark = field_of(field).type
        reading = reading_of(field["type"], {})
        in_iceberg = stored_type(in_spark)
        in_delta = Schema.from_json(T.StructType([T.StructField("c", in_spark)]).json())

        assert reading.read([NO_LEAF] * len(reading.parts)).type == arrow_type(in_spark), field
        assert T.StructType.fromJson(json.loads(in_delta.to_json())).fields[0].dataType == in_spark
        assert in_iceberg.simpleString() in (in_spark.simpleString(), "int")
        assert all(dialect.column_type(in_spark) for dialect in DIALECTS)
