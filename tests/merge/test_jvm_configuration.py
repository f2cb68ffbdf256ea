"""The settings that a JVM of our own gets, and how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, os, subprocess, sys
from schemas.settings import SparkSettings
from spark_jobs.jobs.session import build_session

conf = json.load(sys.stdin)
spark = build_session(SparkSettings(master="local[1]", driver_memory="512m", conf=conf), "test")
applied = {key: spark.sparkContext.getConf().get(key) for key in conf}
lines = []
for folder in os.scandir("/proc"):
    if folder.name.isdigit():
        try:
            lines.append(open(f"/proc/{folder.name}/cmdline", "rb").read().decode("latin-1"))
        except OSError:
            pass
jvms = [line for line in lines if "org.apache.spark.deploy." + "SparkSubmit" in line]
secret = conf["spark.hadoop.fs.s3a.secret.key"][:6]
spark.stop()
print(json.dumps({"applied": applied, "seen": [line for line in lines if secret in line], "jvms": len(jvms)}))
"""


def test_further_configuration_reaches_spark_and_no_command_line() -> None:
    """A JVM warns on its stdout of options that do not fit: a report in JSON (`verify --output json`) is parsed by programs."""
    conf = {
        "spark.hadoop.fs.s3a.secret.key": 's3cret =: \\n"#!\'ß',
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "false",
    }
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(conf), cwd=root, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -Xmn1g"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["applied"] == conf
    assert found["seen"] == []
    assert found["jvms"] >= 1
    assert "NewSize" in done.stderr
