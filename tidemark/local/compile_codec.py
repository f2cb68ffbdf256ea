"""`python -m tidemark.local.compile_codec [workers]`: compile kernels into the cache, if they are not there.

Those of the producer, which is waiting for them, and then those of the merge job's workers.
"""

from __future__ import annotations

import sys

from producer.app import warm_up

if __name__ == "__main__":
    warm_up()
    if "workers" in sys.argv:
        from spark_jobs.arrow import worker_kernels

        worker_kernels.GROUP.load()
