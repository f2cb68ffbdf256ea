"""What the merge job needs of its machine: a Java and the jars of Spark, fetched once and checked.

Files are fetched once into `$TIDEMARK_CACHE` (default `~/.cache/tidemark`), each checked against `artifacts.lock`.
"""

from __future__ import annotations

from tidemark.runtime.artifacts import ArtifactError, UnavailableError
from tidemark.runtime.jars import spark_jars
from tidemark.runtime.java import java_home

__all__ = ["ArtifactError", "UnavailableError", "java_home", "spark_jars"]
