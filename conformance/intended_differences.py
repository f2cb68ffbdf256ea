"""What is meant to differ from Debezium in records, each with its reason; nothing else may.

`make conformance` adds what only its own scenarios show (`tests/conformance/differences.py`); the whole list is in
docs/differences.md.
"""

from __future__ import annotations

from typing import Final

from conformance.difference import Difference, is_same
from conformance.schema_differences import (
    is_exact_unsigned,
    is_in_other_zone,
    is_stored_default,
    is_tinyint,
    is_year_zero,
    with_docs,
)
from conformance.value_differences import (
    is_at_chunk,
    is_committed_later,
    is_compact,
    is_declared_empty,
    is_default_value,
    is_in_six_digits,
    is_in_this_century,
    is_in_transaction,
    is_in_year_0,
    is_in_year_1,
    is_literal_of,
    is_not_read,
    is_one_of,
    is_padded,
    is_printed_by_the_server,
    is_rounded,
    is_same_float,
    is_six_digits_of_bits,
    is_some_seconds_later,
    is_time_without_date,
    is_truncated_to_milliseconds,
    is_unescaped,
    is_unwrapped,
    is_whole_characters,
    is_zero_moment,
)

SNAPSHOT_POSITIONS: Final = frozenset({"first", "first_in_data_collection", "last_in_data_collection", "last"})
# What Debezium's defaults and ours differ in, and masks: the suite's scenarios that have them, and any connector.
DEFAULTS_OF_BOTH: Final = "types|keys|mysql|mariadb"
MASKS: Final = "masks.*|mysql|mariadb"
CONTEXT_HEADERS: Final = frozenset(
    f"__debezium.context.{name}" for name in ("connectorLogicalName", "taskId", "connectorName", "runId")
)
CONTEXT: Final = Difference(
    "no headers that name a Connect task",
    r"header",
    lambda _debezium, ours: ours is None,
    "`__debezium.context.*` name connector, task and run of Kafka Connect; Tidemark has none",
)
NULLS: Final = Difference(
    "NULL stays NULL",
    r"default",
    lambda _debezium, ours: ours is None,
    "Connect's converters put the default of a column in the place of its NULL, unless "
    "`value.converter.replace.null.with.default` is false, which Apicurio's for Avro does not know",
    ops="rcud",
    proof=lambda value: value is None,
)
DOCS: Final = Difference(
    "fields of Avro have their doc",
    r"schema",
    lambda debezium, ours: not is_same(debezium, ours) and is_same(with_docs(debezium), ours),
    "Confluent's converter, whose Avro ours is, gives a field the text of its Connect schema; Apicurio's, which "
    "the comparison runs, does not",
)
DIFFERENCES: Final = (
    CONTEXT,
    Difference(
        "BOOLEAN is TINYINT(1)",
        r"schema",
        is_tinyint,
        "Debezium makes a boolean of a column whose DDL it read as BOOLEAN in the log, and an int16 of the same "
        "column when it reads the table from the server; ours is what the server stores",
    ),
    Difference(
        "BOOLEAN values are 0 and 1",
        r"int16",
        lambda debezium, ours: isinstance(debezium, bool) and type(ours) is int and int(debezium) == ours,
        "as their schema, above",
    ),
    Difference(
        "YEAR 0000 is 0",
        r"io\.debezium\.time\.Year",
        is_one_of({1900: 0}),
        "the server stores and prints 0000; Debezium's log events say 1900, which no YEAR is",
        ops="cudk",
    ),
    Difference(
        "YEAR 0000 in snapshot rows is 0",
        r"io\.debezium\.time\.Year",
        is_one_of({2000: 0}),
        "Debezium's snapshot says 2000, for 2000 as well",
        ops="r",
    ),
    Difference(
        "YEAR DEFAULT 0 is 0",
        r"schema",
        is_year_zero,
        "the server stores 0000 for the number 0, 2000 for the text '0'; Debezium's default is 2000 for both",
    ),
    Difference(
        "the year 0 is a year",
        r"io\.debezium\.time\.(Date|Timestamp|MicroTimestamp|IsoDate|IsoTimestamp)|org\.apache\.kafka\.connect\.data\.(Date|Timestamp)",
        is_in_year_0,
        "the server stores 0000-01-01 to 0000-12-31; Debezium's log events have NULL for them, or 1970 in a NOT NULL column",
        ops="cudk",
    ),
    Difference(
        "the year 0 in snapshot rows is not the year 1",
        r"io\.debezium\.time\.(Timestamp|MicroTimestamp|IsoTimestamp)|org\.apache\.kafka\.connect\.data\.Timestamp",
        is_in_year_1,
        "Debezium's snapshot has DATETIMEs of the year 0 a year later, dates as they are",
        ops="r",
    ),
    Difference(
        "keys of snapshot rows have columns that are left out",
        r"left out",
        is_not_read,
        "Debezium's snapshot does not read what `column.exclude.list` names, and has 0 or an empty text in its keys; "
        "its log events have the values",
        ops="r",
    ),
    Difference(
        "ENUM labels are not escaped",
        r"io\.debezium\.data\.Enum",
        is_unescaped,
        "Debezium's log events give the label `x,y` as `x\\,y`, its snapshot as it is; ours is the label in both",
        ops="cudk",
    ),
    Difference(
        "BIGINT UNSIGNED is a Decimal by default",
        r"schema",
        is_exact_unsigned,
        "Debezium's default is int64, which wraps from 2^63 on; both know the other mode",
        scenarios=DEFAULTS_OF_BOTH,
    ),
    Difference(
        "BIGINT UNSIGNED is exact by default",
        r"org\.apache\.kafka\.connect\.data\.Decimal",
        is_unwrapped,
        "as its schema, above",
        scenarios=DEFAULTS_OF_BOTH,
    ),
    Difference(
        "defaults are what the server stores",
        r"schema",
        is_stored_default,
        "Debezium leaves `'it''s'` doubled, gives BINARY defaults as the bytes of their SQL text, and 2^64-1 as 2^63-1",
    ),
    Difference(
        "TIMESTAMP defaults are in UTC",
        r"schema",
        is_in_other_zone,
        "the server reads the literal in its own zone; Debezium takes it for UTC",
        scenarios="mysql|mariadb",
    ),
    DOCS,
    NULLS,
    Difference(
        "FLOAT in its shortest digits",
        r"float",
        is_same_float,
        "the same float32, in the fewest digits that distinguish it from its neighbours",
    ),
    Difference(
        "the year 1 is not the year 2001",
        r"io\.debezium\.time\.(Date|Timestamp|MicroTimestamp|IsoDate|IsoTimestamp)|org\.apache\.kafka\.connect\.data\.(Date|Timestamp)",
        is_in_this_century,
        "Debezium's `enable.time.adjuster` takes the years 0 to 99 for years of this century and the last",
        scenarios=DEFAULTS_OF_BOTH,
    ),
    Difference(
        "JSON holds what the server prints",
        r"io\.debezium\.data\.Json",
        is_printed_by_the_server,
        "Debezium's log events garble negative times in JSON, drop zeros at the end of times, spell out exponents, and "
        "omit the type of binaries; ours are the numbers, times and binaries that the server itself prints",
        ops="cud",
        scenarios="(?!mariadb).*",
    ),
    Difference(
        "a zero TIMESTAMP is NULL on MariaDB",
        r"io\.debezium\.time\.ZonedTimestamp",
        is_zero_moment,
        "as on MySQL: `0000-00-00 00:00:00` is no moment; Debezium's log events say 1970, which no TIMESTAMP is",
        ops="cud",
        scenarios="mariadb.*",
    ),
    Difference(
        "the position is that of the row event",
        r"source\.pos",
        lambda debezium, ours: type(ours) is int and debezium < ours,
        "events inside a transaction have no position since MariaDB 11.4; Debezium repeats that of the last event that "
        "did, ours is reckoned by the lengths of the events",
        ops="cud",
        scenarios="mariadb.*",
        given=is_in_transaction,
    ),
    Difference(
        "DDL begins no transaction",
        r"boundary",
        lambda debezium, ours: ours is None and debezium["status"] == "BEGIN",
        "Debezium publishes a BEGIN for each DDL statement on MariaDB, and never an END",
        ops="k",
        scenarios="mariadb.*",
    ),
    Difference(
        "a truncate is in no transaction",
        r"transaction",
        lambda debezium, ours: ours is None and debezium.keys() == {"id", "total_order", "data_collection_order"},
        "DDL begins none, see above; Debezium gives TRUNCATE a block on MariaDB",
        ops="t",
        scenarios="mariadb.*",
        given=lambda debezium, ours: debezium["gtid"] is not None and debezium["gtid"] == ours["gtid"],
    ),
    Difference(
        "a transaction ends at its COMMIT",
        r"boundary\.ts_ms",
        is_some_seconds_later,
        "without the microseconds that MySQL logs Debezium gives END the time of the last row",
        ops="k",
        scenarios="mariadb.*",
    ),
    Difference(
        "DATETIME keys before 1970-01-02 have their date in headers",
        r"header",
        is_time_without_date,
        "with `connect` Kafka's header converter writes only the time of day of these",
        ops="k",
        scenarios="time_connect|mysql|mariadb",
    ),
    Difference(
        "TIME 24:00:00 is no 00:00:00Z",
        r"io\.debezium\.time\.IsoTime",
        is_one_of({"00:00:00Z": None}),
        "`isostring` cannot say it; Debezium writes another time, ours is NULL",
        proof=lambda value: value == 86_400_000_000,
    ),
    Difference(
        "rows of XA transactions are those of their XA COMMIT",
        r"transaction|source\.(thread|gtid|file|pos|ts_ms|ts_us|ts_ns)",
        lambda debezium, ours: ours is not None and (debezium is None or type(debezium) is type(ours)),
        "Debezium's have time, position and GTID of XA PREPARE, no thread and no transaction block",
        ops="x",
        given=is_committed_later,
    ),
    Difference(
        "XA transactions have a BEGIN and an END",
        r"boundary",
        lambda debezium, _ours: debezium is None,
        "as all others; Debezium publishes no boundaries of theirs",
        ops="x",
    ),
    Difference(
        "the times of truncates and statements have microseconds",
        r"source\.ts_(us|ns)",
        lambda debezium, ours: debezium % 1_000 == 0 and is_truncated_to_milliseconds(debezium, ours),
        "as all other records have where the server logs them; Debezium cuts them off here",
        ops="ts",
    ),
    Difference(
        "schemas of masked keys say so",
        r"schema",
        lambda debezium, ours: is_same({**debezium, "parameters": {"masked": "true"}}, ours),
        "as in the row, since the key is masked, too",
        scenarios=MASKS,
    ),
    Difference(
        "a masked NULL is NULL",
        r"masked",
        lambda debezium, ours: ours is None and isinstance(debezium, str) and set(debezium) <= {"*"},
        "`column.mask.with.10.chars` makes asterisks of NULL in Debezium, `column.mask.with.0.chars` an empty text",
        ops="rcud",
        proof=lambda value: value is None,
    ),
    Difference(
        "a truncated text ends in a whole character",
        r"truncated",
        is_whole_characters,
        "`column.truncate.to.5.chars` counts UTF-16 units and cuts characters beyond U+FFFF in two in Debezium",
        ops="rcud",
    ),
    Difference(
        "a table whose stored values DDL changed is read again",
        r"record",
        lambda debezium, ours: debezium is None and ours["op"] == "r" and ours["source"]["snapshot"] == "incremental",
        "such a statement leaves no row events (a new column with a default, a converting MODIFY): Debezium's consumers "
        "keep what they had",
        ops="r",
    ),
    Difference(
        "no row of a snapshot is the first or the last",
        r"source\.snapshot",
        lambda debezium, ours: debezium in SNAPSHOT_POSITIONS and ours == "true",
        "chunks are read in parallel",
        ops="r",
    ),
    Difference(
        "a snapshot row has position and time of its chunk",
        r"source\.(ts_ms|ts_us|ts_ns|file|pos)",
        lambda debezium, ours: type(debezium) is type(ours),
        "Debezium reads all rows at one position in the log, ours are read chunk by chunk beside it",
        ops="r",
        given=is_at_chunk,
    ),
    Difference(
        "JSON of snapshot rows is compact",
        r"io\.debezium\.data\.Json",
        is_compact,
        "as in log events, so that both are the same bytes; Debezium's snapshot gives the server's text with its spaces",
        ops="r",
    ),
    Difference(
        "a TIMESTAMP(n) has n digits in snapshot rows",
        r"io\.debezium\.time\.ZonedTimestamp",
        is_padded,
        "as in log events; Debezium's snapshot drops zeros at the end",
        ops="r",
    ),
    Difference(
        "FLOAT in snapshot rows is the one that is stored",
        r"float",
        is_in_six_digits,
        "as in log events; Debezium's snapshot reads the server's text, which has six digits",
        ops="r",
    ),
    Difference(
        "FLOAT in snapshot rows is the one that is stored, in Avro",
        r"float32",
        is_six_digits_of_bits,
        "as in JSON, above",
        ops="r",
    ),
    Difference(
        "DOUBLE(M,D) in snapshot rows is the one that is stored",
        r"double",
        is_rounded,
        "as in log events; Debezium's snapshot reads the server's text, which has D decimals",
        ops="r",
    ),
    Difference(
        "a statement has neither row nor thread",
        r"source\.(row|thread)",
        lambda debezium, ours: ours is None or (type(ours) is int and ours == 0 < debezium),
        "Debezium's are left over from the rows event before",
        ops="s",
        given=lambda _debezium, ours: ours["row"] == 0 and ours["thread"] is None,
    ),
    Difference(
        "a truncate has no row",
        r"source\.row",
        lambda debezium, ours: type(ours) is int and ours == 0 < debezium,
        "Debezium's is left over from the rows event before",
        ops="t",
    ),
    Difference(
        "defaults in models of tables are values",
        r"model\.defaultValueExpression",
        is_default_value,
        "`it's`, `0x00FF`: Debezium leaves quotes doubled and cuts hexadecimal literals (`00F`)",
        ops="s",
        declared=is_literal_of,
    ),
    Difference(
        "no comments of tables and columns",
        r"model\.comment",
        lambda _debezium, ours: ours is None,
        "Debezium's with `include.schema.comments`, which we do not have",
        ops="s",
        scenarios="mariadb_statements|mysql|mariadb",
    ),
    Difference(
        "CHAR(0) has length 0",
        r"model\.length",
        is_one_of({10: 0}),
        "Debezium's models say 10",
        ops="s",
        given=lambda debezium, _ours: debezium["typeName"] in ("CHAR", "BINARY"),
        declared=is_declared_empty,
    ),
)
