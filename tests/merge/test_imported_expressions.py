"""Expressions of Flink CDC, translated: Spark computes what Flink CDC's documentation says of them."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final

from pyspark.sql import SparkSession

from tidemark.importers.flink_cdc.expressions import SAME, translated

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
    "WEEK(TO_DATE('2024-01-09'))": 2,
    "CAST(TO_TIMESTAMP_LTZ(1700000000123, 3) AS VARCHAR)": "2023-11-14 22:13:20.123",
    "CAST(TO_TIMESTAMP_LTZ(1700000000, 0) AS VARCHAR)": "2023-11-14 22:13:20",
    "1 <> CAST(NULL AS INTEGER)": True,
    "1 > CAST(NULL AS INTEGER)": False,
    "CAST(NULL AS INTEGER) = 1 OR POSITION('b' IN 'ab') = 2": True,
    "STARTSWITH('abc', 'a') AND NOT ENDSWITH('abc', 'a') AND (1 = 2) IS NOT TRUE": True,
}


def test_translated_expressions_give_in_spark_what_they_give_in_flink_cdc(spark: SparkSession) -> None:
    items = [f"{translated(text, is_value=True).text} AS c{number}" for number, text in enumerate(EXPRESSIONS)]
    assert not [text for text in EXPRESSIONS if translated(text).missing]
    (row,) = spark.range(1).selectExpr(*items).collect()
    assert {text: row[number] for number, text in enumerate(EXPRESSIONS)} == EXPRESSIONS


CONDITIONS: Final[dict[str, set[int]]] = {
    "a <> 1": {2, 3},
    "a <> b": {2, 3},
    "a NOT IN (1, 5)": {2, 3},
    "s NOT LIKE 'x%' ESCAPE '!'": {2, 3},
    "a NOT BETWEEN 0 AND 1": {2, 3},
    "NOT (a = 1 AND s = 'x')": {2, 3},
    "NOT a > 1": {1, 3},
    "NOT (a <> 1) OR (s = 'y') IS NOT TRUE AND a IS NULL": {1, 3},
    "CASE WHEN a <> 1 THEN 1 ELSE 0 END = 1": {2, 3},
}
"""Conditions, and the rows (by id) that Flink CDC keeps: comparisons with NULL are false, and `<>` is the opposite of `=`."""


def test_translated_conditions_keep_the_rows_that_flink_cdc_keeps(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 1, 1, "x"), (2, 2, 1, "y"), (3, None, None, None)], "id INT, a INT, b INT, s STRING")
    items = [f"coalesce({translated(text).text}, FALSE) AS c{number}" for number, text in enumerate(CONDITIONS)]
    kept = rows.selectExpr("id", *items).collect()
    found = {text: {row[0] for row in kept if row[number + 1]} for number, text in enumerate(CONDITIONS)}
    assert found == CONDITIONS


def test_each_function_that_is_said_to_be_the_same_is_one_of_spark(spark: SparkSession) -> None:
    special = {"CAST", "TRY_CAST", "TIMESTAMPADD", "TIMESTAMPDIFF"}  # parts of the grammar
    assert {name for name in SAME - special if not spark.catalog.functionExists(name.lower())} == set()
