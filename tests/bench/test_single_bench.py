"""The benchmark of transactions of one row without servers: that its parts fit the log reader, which it is built around."""

from __future__ import annotations

import pytest

from bench.single_bench import DroppingPublisher, measure, packets_of


def test_it_reads_all_transactions_and_drops_their_records(capsys: pytest.CaptureFixture[str]) -> None:
    publisher = DroppingPublisher()
    measure("a few", packets_of(40, 1), 40, 1 << 14, publisher, profile=False)
    assert "transactions/s" in capsys.readouterr().out
    assert (publisher.uncommitted, publisher.uncommitted_bytes) == (0, 0)
