"""`python -m tidemark.local.compile_codec`: compile the kernels of the producer into the cache, if they are not there."""

from __future__ import annotations

from producer.app import warm_up

if __name__ == "__main__":
    warm_up()
