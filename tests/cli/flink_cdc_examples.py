"""The pipelines of Flink CDC's documentation in other words: sections that a test completes, one per example there."""

from __future__ import annotations

from typing import Any

SOURCE: dict[str, Any] = {
    "type": "mysql", "name": "the shop", "hostname": "db.internal", "port": 3307, "username": "reader", "password": "hush",
    "tables": r"shop.\.*", "server-id": "6100-6103", "server-time-zone": "UTC",
}  # fmt: skip
SINK: dict[str, Any] = {"type": "values"}
PIPELINE: dict[str, Any] = {"name": "Shop to somewhere", "parallelism": 3}
MANY = r"shop.\.*, hub.person_[0-9]+, [one|two].bill_\.*"
_MODEL = {"model-name": "TALK", "class-name": "OpenAIChatModel", "openai.model": "m", "openai.host": "http://m", "openai.apikey": "k"}


def _sink(kind: str, **options: Any) -> dict[str, Any]:
    named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    return {"source": SOURCE | {"tables": MANY}, "sink": {"type": kind, "name": f"a sink of {kind}", **named}}


def _start(mode: str, **offset: Any) -> dict[str, Any]:
    named = {f"scan.startup.{name.replace('__', '.').replace('_', '-')}": value for name, value in offset.items()}
    return {"source": SOURCE | {"scan.startup.mode": mode} | named}


def _transform(**members: Any) -> dict[str, Any]:
    rule = {"source-table": "shop.web_bill"} | {name.replace("_", "-"): value for name, value in members.items()}
    return {"transform": [rule | {"description": "an example"}]}


def _routes(*pairs: tuple[str, str], **more: str) -> dict[str, Any]:
    extra = {name.replace("_", "-"): value for name, value in more.items()}
    return {"route": [{"source-table": source, "sink-table": sink, "description": "why"} | extra for source, sink in pairs]}


EXAMPLES: dict[str, dict[str, Any]] = {
    # connectors
    "doris": _sink("doris", fenodes="doris:8030", username="u", password="", table_create_properties_replication__num=1),
    "doris with back ends": _sink("doris", fenodes="d:8030", benodes="d:8040", table_create_properties_light__schema__change=True),
    "elasticsearch": _sink("elasticsearch", hosts="http://a:9200,http://b:9200") | _routes((r"shop.\.*", "everything")),
    "fluss": _sink("fluss", bootstrap_servers="f:9123", properties_client_security_sasl_password="p")
    | {"pipeline": PIPELINE | {"schema.change.behavior": "LENIENT"}},
    "hudi": _sink("hudi", path="/warehouse", hoodie_table_type="MERGE_ON_READ")
    | {"transform": [{"source-table": r"shop.\.*", "table-options": "ordering.fields=changed"}]},
    "iceberg": _sink("iceberg", catalog_properties_type="hadoop", catalog_properties_warehouse="/warehouse"),
    "iceberg by glue": _sink("iceberg", catalog_properties_type="glue", catalog_properties_warehouse="s3://b/w")
    | {"pipeline": PIPELINE | {"operator.uid.prefix": "x", "schema-operator.rpc-timeout": "1 h"}},
    "kafka": _sink("kafka", properties_bootstrap_servers="PLAINTEXT://k:9092"),
    "kafka, one topic": _sink("kafka", properties_bootstrap_servers="k:9092", topic="all"),
    "kafka, routes": _sink("kafka", properties_bootstrap_servers="k:9092")
    | _routes(("shop.bills", "topic_bills"), (r"shop.parcel\.*", "topic_parcels")),
    "kafka, by key": _sink("kafka", partition_strategy="hash-by-key", key_format="csv", value_format="canal-json"),
    "kafka, mapping": _sink("kafka", **{"sink_tableId-to-topic_mapping": "shop.bills:b;shop.parcels:p"}),
    "maxcompute": _sink("maxcompute", access__id="a", access__key="s", endpoint="e", project="p", buckets__num=8),
    "mysql startup earliest": _start("earliest-offset"),
    "mysql startup latest": _start("latest-offset"),
    "mysql startup offset": _start("specific-offset", specific_offset__file="binlog.000007", specific_offset__pos=194),
    "mysql startup gtids": _start(
        "specific-offset", specific_offset__gtid_set="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77", specific_offset__skip_events=2,
        specific_offset__skip_rows=1, specific_offset__file="binlog.000007", specific_offset__pos=194,
    ),
    "mysql startup timestamp": _start("timestamp", timestamp_millis=1764000000000),
    "mysql startup snapshot": _start("snapshot"),
    "mysql, further options": {
        "source": SOURCE
        | {
            "tables.exclude": r"shop.log_\.*", "schema-change.enabled": False, "scan.incremental.snapshot.chunk.size": 9000,
            "scan.snapshot.fetch.size": 512, "connect.timeout": "45s", "connect.max-retries": 5, "connection.pool.size": 9,
            "jdbc.properties.useSSL": "false", "heartbeat.interval": "10s", "debezium.snapshot.locking.mode": "none",
            "scan.incremental.close-idle-reader.enabled": True, "scan.newly-added-table.enabled": True,
            "scan.binlog.newly-added-table.enabled": True, "scan.parse.online.schema.changes.enabled": True,
            "include-comments.enabled": True, "treat-tinyint1-as-boolean.enabled": False, "use.legacy.json.format": False,
            "scan.incremental.snapshot.unbounded-chunk-first.enabled": True, "scan.incremental.snapshot.backfill.skip": True,
            "metadata.list": "op_ts", "ignore-no-primary-key-table": True, "no.such.option": [1, 2],
        }
    },
    "oceanbase": _sink("oceanbase", url="jdbc:mysql://o:2881/t", username="root@t", password="p"),
    "oracle": {"source": SOURCE | {"type": "oracle", "database": "ORCL"}, "sink": {"type": "doris", "fenodes": "d:8030"}},
    "oracle startup": {"source": {"type": "oracle", "scan.startup.mode": "latest-offset"}},
    "paimon": _sink("paimon", catalog_properties_metastore="filesystem", catalog_properties_warehouse="/w"),
    "postgres": {
        "source": SOURCE | {"type": "postgres", "tables": r"one.\.*.\.*", "slot.name": "s", "decoding.plugin.name": "pgoutput"},
        "sink": {"type": "fluss", "bootstrap.servers": "f:9123"},
        "pipeline": PIPELINE | {"schema.change.behavior": "lenient"},
    },
    "postgres metadata": {
        "source": SOURCE | {"type": "postgres", "metadata.list": "op_ts,table_name,schema_name"},
        "transform": [{"source-table": "one.public.bills", "projection": "id, op_ts, table_name", "description": "metadata"}],
    },
    "sqlserver": {"source": SOURCE | {"type": "sqlserver", "schema-change.enabled": True}},
    "starrocks": _sink("starrocks", jdbc__url="jdbc:mysql://s:9030", load__url="s:8030", username="u", password="p"),
    # AI models
    "ai functions": _transform(projection="*, AI_COMPLETE('m', page, 'shorten') AS short, AI_EMBED('e', page) AS vector")
    | {
        "pipeline": {
            "model": [{"name": "m", "type": "openai-compatible", "options": {"model": "x", "api-key": "k", "max-tokens": 9}}]
        }
    },
    "ai models": {"pipeline": PIPELINE | {"model": [_MODEL, _MODEL | {"model-name": "PLACE", "openai.chat.prompt": "p"}]}},
    "ai models in rules": _transform(projection="*, inc(inc(id)) as more, TALK(page) as answer", filter="inc(id) < 9")
    | {"pipeline": {"model": [_MODEL], "user-defined-function": [{"name": "inc", "classpath": "org.example.Inc"}]}},
    # pipelines, sources and sinks
    "a pipeline": {"pipeline": {"name": "Sync everything", "parallelism": 2}},
    "a whole pipeline": {
        "transform": [
            {"source-table": "shop.bill01", "projection": r"\*, shape('%s', title) as title", "filter": "inc(id) > 1 AND n > 7"},
            {"source-table": "shop.bill02", "projection": r"\*, shape('%s', title) as title", "filter": "inc(id) > 2 AND n > 8"},
        ],
        "pipeline": PIPELINE
        | {
            "user-defined-function": [
                {"name": "inc", "classpath": "org.example.Inc"},
                {"name": "shape", "classpath": "org.example.Shape"},
            ]
        },
    }
    | _routes(("shop.bills", "ods.bills"), ("shop.parcels", "ods.parcels"), ("shop.goods", "ods.goods")),
    "a source": {"source": {"type": "mysql", "host": "db", "username": "u", "tables": r"shop.*, hub.person_[0-9]+, [a|b]_order_\.*"}},
    "every pipeline option": {
        "pipeline": PIPELINE
        | {
            "local-time-zone": "Asia/Shanghai", "execution.runtime-mode": "BATCH", "schema.operator.uid": "u",
            "sink.partitioning.strategy": "PRIMARY_KEY", "transform.decimal.precision.mode": "UP_TO_19",
        }
    },
    "streaming": {"pipeline": {"execution.runtime-mode": "STREAMING", "local-time-zone": "UTC", "route-mode": "ALL_MATCH"}},
    # routes
    "route mode": _routes(("shop.a", "ods.a"), (r"shop.\.*", "ods.b")) | {"pipeline": PIPELINE | {"route-mode": "FIRST_MATCH"}},
    "route one to one": _routes(("shop.web_bill", "shop.ods_web_bill")),
    "route many to one": _routes((r"shop\.*", "shop.ods_web_bill")),
    "route many to many": _routes(("shop.bills", "ods.ods_bills"), ("shop.parcels", "ods.ods_parcels")),
    "route with a symbol": _routes((r"shop.\.*", "ods.<>"), replace_symbol="<>"),
    "route with groups": _routes((r"shop_(\.*).(\.*)_part", "ods_$1.all_$2")),
    "route with a wrong group": _routes(("shop.bills", "ods.bills_$2")),
    # schema changes
    "schema changes": {"pipeline": {"schema.change.behavior": "evolve"}},
    "schema changes by kind": {
        "sink": SINK | {"include.schema.changes": ["create.table", "column"], "exclude.schema.changes": ["drop.column"]}
    },
    # transforms
    "soft delete": _transform(projection=r"\*, __data_event_type__ AS kind", converter_after_transform="SOFT_DELETE"),
    "metadata": {"source": SOURCE | {"metadata.list": "op_ts"}}
    | _transform(
        projection=r"\*, __namespace_name__ || '.' || __schema_name__ || '.' || __table_name__ AS origin,"
        " __data_event_type__ AS kind, op_ts AS at"
    ),
    "computed": _transform(projection="id, bill_id, LOWER(title) as title, localtimestamp as seen"),
    "computed metadata": _transform(projection="id, bill_id, __schema_name__ || '.' || __table_name__ origin"),
    "wildcards": {
        "transform": [
            {"source-table": "shop.web_bill", "projection": r"\*, LOWER(title) as title"},
            {"source-table": "shop.app_bill", "projection": "LOWER(title) as title, *"},
        ]
    },
    "filter": _transform(filter="id > 5 AND bill_id > 50"),
    "filter on a computed column": _transform(projection="id, UPPER(city) as place", filter="place = 'BONN'"),
    "primary keys": _transform(projection="id, bill_id", primary_keys="bill_id"),
    "primary keys, two": _transform(projection="id, bill_id, LOWER(title) as title", primary_keys="bill_id, title"),
    "primary keys of a topic": _sink("kafka", properties_bootstrap_servers="k:9092")
    | _transform(projection="id, bill_id", primary_keys="id"),
    "partition keys": _transform(projection="id, LOWER(title) as title", partition_keys="title"),
    "table options": _transform(projection="id, LOWER(title) as title", table_options="comment=bills of the web"),
    "table options with a delimiter": _transform(table_options="sequence.field=a,b;bloom=c", **{"table-options.delimiter": ";"}),
    "fallback": {
        "transform": [
            {"source-table": "shop.web_bill", "projection": "id, bill_id", "filter": "id > 99"},
            {"source-table": r"shop.\.*", "projection": r"\*, 'other' AS KIND"},
        ]
    },
    "functions": {"pipeline": {"user-defined-function": [{"name": "inc", "classpath": "x.Inc"}, {"name": "shape", "classpath": "x.S"}]}},
    "a function with options": {
        "pipeline": {"user-defined-function": [{"name": "ask", "classpath": "x.Ask", "options": {"hostname": "h", "port": "1"}}]}
    },
    "functions in rules": _transform(projection="*, inc(inc(id)) as more, shape(id, 'id is %d') as text", filter="inc(id) < 100"),
    "python functions": _transform(projection="ID, tidy(MAIL) AS MAIL_TIDY, twice(AGE) AS DOUBLED")
    | {
        "pipeline": {
            "user-defined-function": [
                {"name": "tidy", "python-code": "def eval(s: str) -> str:\n    return s", "python-executable": "/usr/bin/python3"},
                {"name": "twice", "python-code": "def eval(x: int) -> int:\n    return 2 * x", "python-files": ["/deps", "/deps.zip"]},
            ]
        }
    },
    # questions and first steps
    "tinyint": {"source": SOURCE | {"treat-tinyint1-as-boolean.enabled": True}},
    "first steps": _sink("doris", fenodes="d:8030", username="root", password="", table_create_properties_light__schema__change=True)
    | _routes((r"shop.bill\.*", "ods.bills")),
    "further sections": {"execution": {"checkpointing": {"interval": "3s"}}, "rest.address": "h"},
}
