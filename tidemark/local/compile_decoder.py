"""`python -m tidemark.local.compile_decoder`: compile the kernels of the merge job's workers into the cache, if need be."""

from __future__ import annotations

from spark_jobs.merge import worker_run  # noqa: F401 - its kernels are compiled when they are defined
