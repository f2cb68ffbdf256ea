"""A broker for tests: small data, a short life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from devservers import Kafka, start_kafka


def own_kafka(folder: Path, **options: Any) -> Kafka:
    """Start one, with the options of `start_kafka`, without the optimising compiler: a third of its CPU would be that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
        return start_kafka(folder, **options)
