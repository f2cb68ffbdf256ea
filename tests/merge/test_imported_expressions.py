"""Expressions of Flink CDC, translated: Spark computes what Flink CDC's documentation says of them."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final

from pyspark.sql import SparkSession

from tidemark.importers.flink_cdc.expressions import translated

EXPRESSIONS: Final[dict[str, Any]] = {
    "LTRIM('xxab', 'x') || RTRIM('ab  ') || BTRIM('xcx', 'x')": "ababc",
    "FROM_BASE64(TO_BASE64('ü'))": "ü",
    "FROM_BASE64_BINARY(TO_BASE64('a'))": bytearray(b"a"),
    r"REGEXP_EXTRACT('a12b', '\d+')": "12",
    r"REGEXP_EXTRACT('a12b', '(\w)(\d+)', 2)": "12",
    r"REGEXP_REPLACE('a1', '\d', 'it''s')": "ait's",
    "REGEXP_COUNT('abab', 'b') + REGEXP_INSTR('abab', 'b')": 4,
    "CAST(CAST(1.5 AS DECIMAL(3, 1)) AS VARCHAR)": "1.5",
    "CARDINALITY(ARRAY[1, 2]) + ARRAY_POSITION(ARRAY[1, 2], 2)": 4,
    "MAP['a', 1]": {"a": 1},
    "POSITION('b' IN 'ab') + INSTR('ab', 'a') + LOCATE('b', 'ab')": 5,
    "SUBSTRING('abc' FROM 2 FOR 1) || SUBSTR('abc', 3) || LEFT('abc', 1)": "bca",
    "OVERLAY('abc' PLACING 'X' FROM 2 FOR 1)": "aXc",
    "LPAD('a', 3, '-') || REPEAT('b', 2) || REPLACE('cc', 'c', 'd')": "--abbdd",
    "CHAR_LENGTH('日本')": 2,
    "TO_TIMESTAMP('2024-01-02 03:04:05')": datetime(2024, 1, 2, 3, 4, 5),
    "TO_DATE('02.01.2024', 'dd.MM.yyyy')": date(2024, 1, 2),
    "EXTRACT(YEAR FROM TO_DATE('2024-01-02')) + DAYOFWEEK(TO_DATE('2024-01-07'))": 2025,
    "TIMESTAMPDIFF(DAY, TO_TIMESTAMP('2024-01-01 00:00:00'), TO_TIMESTAMP('2024-01-03 00:00:00'))": 2,
    "DATE_FORMAT(TO_TIMESTAMP('2024-01-02 03:04:05'), 'yyyy/MM')": "2024/01",
    "CASE WHEN 1 IS DISTINCT FROM NULL THEN IF(TRUE, 'a', 'b') ELSE IFNULL(NULL, 'c') END": "a",
    "TRY_CAST('x' AS INTEGER)": None,
    "STARTSWITH('abc', 'a') AND NOT ENDSWITH('abc', 'a') AND (1 = 2) IS NOT TRUE": True,
}


def test_translated_expressions_give_in_spark_what_they_give_in_flink_cdc(spark: SparkSession) -> None:
    items = [f"{translated(text).text} AS c{number}" for number, text in enumerate(EXPRESSIONS)]
    assert not [text for text in EXPRESSIONS if translated(text).missing]
    (row,) = spark.range(1).selectExpr(*items).collect()
    assert {text: row[number] for number, text in enumerate(EXPRESSIONS)} == EXPRESSIONS
