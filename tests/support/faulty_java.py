"""A Java whose start can be disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidemark.runtime import java_home

ENDS_FROM_FULL_DISK: Final = """
case "$*" in
    *org.apache.spark.launcher.Main*) ;;
    *org.apache.spark.deploy.SparkSubmit*) ulimit -S -f 0 ;;
esac
"""
"""The JVM of Spark can write no byte to a file."""


def java_that(does: str, folder: Path) -> str:
    """Return a JAVA_HOME in a folder: lines of a shell are run before each Java, with its arguments in `$*`."""
    java = folder / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/bash\n{does}\nexec "{java_home(17) / "bin" / "java"}" "$@"\n', "utf-8")
    java.chmod(0o755)
    return str(java.parents[1])
