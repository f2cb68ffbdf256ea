"""A signal into one of the ways a producer hears by: its signal table, its Kafka topic, its file, its HTTP endpoint.

Each returns when the signal is there to stay (committed, acknowledged, on disk, accepted) and raises an
error that says why it is not. The notifications topic reports whether the producer carries it out.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import secrets
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from schemas import signals
from schemas.errors import ConfigError, PublishError, SignalError
from schemas.settings import ServiceSettings, Settings
from schemas.waiting import waiting

CHANNELS: Final = ("source", "kafka", "file", "http")
WIDEST_ID: Final = 42
WIDEST_DATA: Final = 2048
"""Characters that the columns of the signal table hold (Debezium's contract)."""
SIGNALS_PATH: Final = "/api/v1/signals"
_DELIVERY_S: Final = 20.0
_HTTP_S: Final = 30.0


def signal_of(document: object, prefix: str) -> tuple[str, str, str | None]:
    """Return id, type and data (JSON) of a request's body; without an id one that begins with the prefix.

    Raises `SignalError` for what is no signal, or is wider than the signal table.
    """
    if not isinstance(document, dict):
        raise SignalError("the body is not a JSON object")
    unknown = sorted(document.keys() - {"id", "type", "data"})
    if unknown:
        raise SignalError(f"the body has unknown members: {', '.join(unknown)}; there are id, type and data")
    kind, data = document.get("type"), document.get("data")
    signal_id = document.get("id", f"{prefix}-{secrets.token_hex(6)}")
    if not isinstance(kind, str):
        raise SignalError("type: is missing, or no text")
    if not isinstance(signal_id, str) or not 1 <= len(signal_id) <= WIDEST_ID or not _is_text(signal_id):
        raise SignalError(f"id: is no text of 1 to {WIDEST_ID} characters")
    text = data if data is None or isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    if text is not None and len(text) > WIDEST_DATA:
        raise SignalError(f"data: has {len(text)} characters, the signal table holds {WIDEST_DATA}")
    signals.parse_signal(signal_id, kind, text)
    return signal_id, kind, text


def _is_text(text: str) -> bool:
    """Return whether it holds whole characters only: JSON can escape halves of them, which no table takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def send(
    channel: str, settings: Settings, signal_id: str, kind: str, data: str | None, url: str | None = None
) -> None:
    """Put a signal into a channel, one of `CHANNELS`. `url` is that of the producer's HTTP endpoint, if not the settings'.

    Raises `ConfigError` for a channel that the settings' producer does not hear, else what the channel's function does.
    """
    if channel == "source":
        insert(settings, signal_id, kind, data)
    elif channel == "kafka":
        produce(settings, signal_id, kind, data)
    elif channel == "file":
        append(settings, signal_id, kind, data)
    else:
        post(settings.service, signal_id, kind, data, url)


def lasting(settings: Settings) -> str:
    """Return the channel that keeps what comes over HTTP: the signal table, or another one where the source is only read."""
    others = [channel for channel in ("kafka", "file") if channel in settings.signal.channels]
    return others[0] if settings.source.read_only and others else "source"


def insert(settings: Settings, signal_id: str, kind: str, data: str | None) -> None:
    """Commit one row in the signal table; raises the errors of the source, `ConfigError` where nothing is to be written there."""
    names = settings.source.signal_names
    if names is None:
        raise ConfigError("source.signal_table: is not set, so there is no table to put a signal into")
    if settings.source.read_only:
        raise ConfigError(
            "source.read_only: nothing is written to the source, so no signal either. Use --channel kafka or file (those "
            "that signal.channels names), or INSERT the row at the server that this one replicates"
        )
    for what, text, most in (("id", signal_id, WIDEST_ID), ("data", data or "", WIDEST_DATA)):
        if len(text) > most:  # a server that is not strict would cut it
            raise ConfigError(f"{what}: has {len(text)} characters, the signal table holds {most}; name fewer tables in one signal")
    from mysqlio.connection import connect
    from mysqlio.server_access import ServerAccess
    from mysqlio.server_errors import source_errors
    from mysqlio.signal_table import SignalTable, insert_row

    connection = connect(ServerAccess.of(settings.source))
    try:
        with source_errors(f"signal table {'.'.join(names)}"):
            is_new = insert_row(connection, SignalTable(*names), (signal_id, kind, data))
    finally:
        connection.close()
    if not is_new:
        raise ConfigError(f"id: {signal_id!r} is in the signal table {'.'.join(names)} already; use a new one")


def produce(settings: Settings, signal_id: str, kind: str, data: str | None) -> None:
    """Produce a record to the signal topic: partition 0, key is the producer's name. Raises `PublishError` if Kafka refuses."""
    _require_heard("kafka", settings)
    from kafkaio.record_writer import RecordWriter

    topic = settings.signal.topic(settings.name)
    client = RecordWriter(settings.kafka, {"message.timeout.ms": int(_DELIVERY_S * 1000)})
    try:
        client.produce(topic, signals.signal_document(signal_id, kind, data).encode(), settings.name, 0)
        with waiting("kafka", settings.kafka.bootstrap_servers, f"the signal to be taken by {topic}"):
            client.flush(_DELIVERY_S + 5.0)
    except PublishError as error:
        raise PublishError(f"topic {topic} did not take the signal: {error}; was `tidemark run` ever started?") from error


def append(settings: Settings, signal_id: str, kind: str, data: str | None) -> None:
    """Append a line to the signal file, in one write. Raises `ConfigError` if the file cannot be written."""
    _require_heard("file", settings)
    path = Path(settings.signal.file or "")
    line = signals.signal_document(signal_id, kind, data).encode() + b"\n"
    try:
        with path.open("a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(f"signal.file: {path} cannot be written: {error.strerror}") from error


def post(
    service: ServiceSettings, signal_id: str, kind: str, data: str | None, url: str | None = None
) -> None:
    """Send a request to the producer's HTTP endpoint, with the token of the settings.

    Raises `SignalError` with the endpoint's words when it refuses, `PublishError` when it is not to be reached.
    """
    from tidemark.api.access import token_of

    base = url or _address(service)
    headers = {"Content-Type": "application/json"}
    token = token_of(service)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if not base.startswith(("http://", "https://")):
        raise ConfigError(f"--url {base!r}: expected http://host:port")
    body = signals.signal_document(signal_id, kind, data).encode()
    request = urllib.request.Request(base.rstrip("/") + SIGNALS_PATH, body, headers)  # noqa: S310 - checked above
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is a neighbour, or this machine
        with waiting("producer", base, "the answer to a signal"), direct.open(request, timeout=_HTTP_S):
            return
    except urllib.error.HTTPError as error:
        with error:
            message = f"{base} refused the signal: {_reason(error.read(), error.code)}"
        raise SignalError(message) from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # the latter two: no URL, no HTTP there, no header
        reason = getattr(error, "reason", None) or error
        raise PublishError(f"{base} cannot be reached: {reason}; does `tidemark run` run there, with service.port?") from error


def _require_heard(channel: str, settings: Settings) -> None:
    if channel not in settings.signal.channels:
        heard = ", ".join(settings.signal.channels)
        raise ConfigError(f"signal.channels: {channel} is not among them, so nobody would hear the signal; there are {heard}")


def _address(service: ServiceSettings) -> str:
    if not service.port:
        raise ConfigError("service.port: is not set, so the producer has no HTTP endpoint; set it, or give --url")
    host = service.host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{service.port}"
    if address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return f"http://[{host}]:{service.port}" if address.version == 6 else f"http://{host}:{service.port}"


def _reason(body: bytes, status: int) -> str:
    """Return what the endpoint says; the status where that is not to be understood."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {status}"
