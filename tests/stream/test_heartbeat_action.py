"""The statement that is run with heartbeats."""

from __future__ import annotations

import time

import pytest

from producer.stream.handlers.heartbeat import HeartbeatAction
from schemas.errors import SecretError


def test_a_password_that_cannot_be_read_is_told() -> None:
    """Its thread had died of it, and the statement was run no more while heartbeats went on."""

    def no_password() -> None:
        raise SecretError("source.password_file: it is gone")

    action = HeartbeatAction(no_password, "DO 1")  # type: ignore[arg-type]
    action.start()

    def asked() -> None:
        for _ in range(1200):
            action.request()
            time.sleep(0.1)

    with pytest.raises(SecretError, match="it is gone"):
        asked()
    action.stop()
