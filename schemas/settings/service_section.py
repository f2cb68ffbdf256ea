"""The sections `signal` and `service`: where commands come in, and the HTTP endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from schemas.settings.declaration import checking, problem, setting
from schemas.settings.text_forms import host, plain
from schemas.topics import signal_topic

_CHANNELS: Final = ("source", "kafka", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSettings:
    """Where signals come from."""

    channels: tuple[str, ...] = setting(
        ("source",),
        help="`source` (the signal table, always heard), `kafka` (a topic) and `file`",
    )
    kafka_topic: str | None = setting(
        None,
        help="topic of signals, `<name>-signal` by default: partition 0, key `<name>`, "
        'value `{"id": …, "type": …, "data": {…}}`',
    )
    file: str | None = setting(
        None, help="file of signals, one such JSON object per line; it is only read", file=True
    )
    poll_interval_ms: int = setting(
        1000, help="milliseconds from one look into topic or file to the next", minimum=10,
        maximum=3_600_000,
    )

    def topic(self, name: str) -> str:
        """Return the topic of signals."""
        return self.kafka_topic or signal_topic(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The producer's HTTP endpoint: health, metrics, status, signals; and the merge job's: health, metrics."""

    host: str = setting(
        "127.0.0.1", help="address to listen on; `0.0.0.0` for all, which needs a token for signals",
        form=host,
    )
    port: int = setting(0, help="TCP port; 0: nothing listens", minimum=0, maximum=65535)
    merge_port: int = setting(
        0, help="TCP port of the merge job's `/livez`, `/readyz` and `/metrics`; 0: nothing listens", minimum=0, maximum=65535
    )
    page_port: int = setting(8090, help="TCP port of `tidemark page`; 0: a free one", minimum=0, maximum=65535)
    page_names: tuple[str, ...] = setting(
        (), help="names under which browsers reach `tidemark page` besides those of this machine, behind a proxy for example"
    )
    token: str = setting(
        "", help="what a signal must show as `Authorization: Bearer …`; better: `token_file`", secret=True,
        form=plain,
    )
    token_file: str | None = setting(None, help="file whose first line is the token", file=True)


@checking
def check_signal(signal: SignalSettings) -> Iterator[str]:
    """Raise `ConfigError` if settings of the section exclude each other."""
    for channel in signal.channels:
        if channel in ("jmx", "in-process"):
            yield problem("signal.channels", f"{channel!r} is a channel of Java processes; use kafka or file")
        elif channel not in _CHANNELS:
            yield problem("signal.channels", f"{channel!r} is not one of {', '.join(_CHANNELS)}")
    if ("file" in signal.channels) != (signal.file is not None):
        yield problem("signal.file", "the channel `file` and the name of the file go together; give both")
    if signal.kafka_topic is not None and "kafka" not in signal.channels:
        yield problem("signal.kafka_topic", "is never read: add kafka to signal.channels")


@checking
def check_service(service: ServiceSettings) -> Iterator[str]:
    """Raise `ConfigError` if settings of the section exclude each other."""
    if service.token and service.token_file is not None:
        yield problem("service.token_file", "token and token_file are both given; keep the file")
