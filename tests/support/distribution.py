"""Which worker runs what, and in which order: so that a failure shows early and no worker works alone at the end.

A file is one unit: its tests share what its fixtures made. The tests that need Spark in their own process are three units, each on
one Spark: more of them would start and compile the same code more often, and one alone takes longer than all the rest of a run.
First come pure tests, then what takes longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

PURE: Final = ("runs", "schemas", "bench", "binlog", "control", "conformance", "store", "sinks/test_memory_sink", "sinks/test_snapshot_log", "arrow/test_arrow_decoder")
"""Folders that need next to no server: they show within a minute what is broken at its root."""
LONG: Final = (
    "merge", "formats", "sinks", "verify/test_image_verify", "verify/test_iceberg_verify", "verify/test_reader_behaviour",
    "e2e/test_evolution", "e2e/test_crashes", "e2e/test_merged_by_the_producer", "e2e/test_operations",
    "e2e/test_registry_lost", "docs/test_executed_pages", "chaos", "truth/test_truth", "e2e/test_cascades", "demo", "e2e", "integration/test_set_aside",
    "integration/test_cascades", "codec/test_without_the_jit", "integration", "stream", "snapshot", "verify",
)  # fmt: skip
"""The rest, the longest first: a folder, or a file of it."""
SPARKS: Final = {
    "tests/sinks": (
        "tests/formats/", "tests/sinks/test_delta_sink.py", "tests/sinks/test_iceberg_sink.py",
        "tests/sinks/test_relational_sinks.py", "tests/sinks/test_changelog_sinks.py", "tests/sinks/test_kafka_mirror.py",
        "tests/sinks/test_mixed_writers.py", "tests/sinks/test_old_files.py", "tests/verify/test_image_verify.py",
        "tests/verify/test_iceberg_verify.py", "tests/verify/test_mirror_verify.py", "tests/verify/test_reader_behaviour.py",
        "tests/verify/test_wrong_settings.py",
    ),
    "tests/merge, routes": (
        "tests/merge/test_changelog", "tests/merge/test_mirrored", "tests/merge/test_iceberg", "tests/merge/test_routed",
        "tests/merge/test_schema",
        "tests/merge/test_quarantine", "tests/merge/test_set_aside", "tests/merge/test_left_out", "tests/merge/test_other",
        "tests/merge/test_soft_delete", "tests/cli/test_merge_starts.py", "tests/integration/test_consumers.py", "tests/pipeline/test_row_images.py",
    ),
    "tests/merge": ("tests/merge/", "tests/arrow/test_arrow_as_spark.py"),
}  # fmt: skip
"""What shares one Spark, by the name of the unit; the first that has a file counts."""


def unit(nodeid: str) -> str:
    """Return the name of what a test is run with, by one worker."""
    path = nodeid.partition("::")[0]
    return next((name for name, paths in SPARKS.items() if path.startswith(paths)), path)


def rank(nodeid: str) -> int:
    """Return the place of a test in the order of a run."""
    path = nodeid.partition("::")[0].removeprefix("tests/").removesuffix(".py")
    order: Sequence[str] = (*PURE, *LONG)
    return next((index for index, name in enumerate(order) if path == name or path.startswith(f"{name}/")), len(order))


class Units(LoadFileScheduling):
    """xdist's distribution of files, with units of our own."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Units | None:
    """Distribute by units where files were asked for."""
    return Units(config, log) if config.getvalue("dist") == "loadfile" else None  # type: ignore[arg-type]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in their order; those of one file keep theirs."""
    items.sort(key=lambda item: rank(item.nodeid))
