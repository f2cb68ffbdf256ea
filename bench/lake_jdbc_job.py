"""A first load as a user of Spark would write it: JDBC in ranges of the key, appended to Delta.

`python -m bench.lake_jdbc_job DOCUMENT` loads one table for each request in its folder, until SIGTERM.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.lake_spark_job import session
from devservers.bundles import bundle_files

_RANGES = 8


def main() -> None:
    """Serve requests."""
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder, spark = Path(document["folder"]), session(*bundle_files("mysql-jdbc", print))
    (folder / "ready").touch()
    asked = folder / "asked"
    while True:
        if not asked.exists():
            time.sleep(0.02)
            continue
        request = json.loads(asked.read_text(encoding="utf-8"))
        asked.unlink()
        rows = (
            spark.read.format("jdbc")
            .option("url", document["url"])
            .option("user", document["user"])
            .option("password", document["password"])
            .option("driver", "com.mysql.cj.jdbc.Driver")
            .option("dbtable", request["table"])
            .option("fetchsize", "10000")
            .option("partitionColumn", "id")
            .option("lowerBound", "0")
            .option("upperBound", str(request["rows"]))
            .option("numPartitions", str(_RANGES))
            .load()
        )
        rows.write.format("delta").mode("append").save(request["path"])
        (folder / f"{request['table']}.done").touch()


if __name__ == "__main__":
    main()
