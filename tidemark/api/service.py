"""The producer's HTTP endpoint: is it alive, is it ready, how far is it, and do this.

=========================  =====================================================================================
`GET /livez`               200 while the process answers
`GET /readyz`              200 while the log reader runs; 503 and the reason while it starts, waits for a server, or
                           stands by
`GET /metrics`             Prometheus' text format; `/metrics?format=debezium` has Debezium's names
`GET /api/v1/status`       what `tidemark status --output json` prints
`GET /api/v1/group`        the members of the source's group (`order.group`), as `tidemark ctl status` has them
`POST /api/v1/signals`     `{"type": …, "data": {…}, "id": …}` becomes a row of the signal table, or what else keeps
                           signals where the source is only read: 202 and its id
=========================  =====================================================================================

Signals change what the producer does, so a request must be JSON by its content type (no page of another origin can
send that unasked) and, where the endpoint listens on more than loopback, carry the token. On loopback without a token
`/api/v1` answers only to names of this machine (`Host`, and `Origin` where a page asks): a browser can be led to loopback
by any other name. Errors are JSON, `error` says what is wrong. Requests are few and small: one thread each, bounded in
number, size and time. A client that does not finish its request makes room for the next one.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest

from producer.group.joined_source import waits_in_group
from producer.standstill import Standstill
from schemas.errors import ConfigError, SignalError, TidemarkError
from schemas.overriding import override
from tidemark.api.access import foreign_name, is_loopback, is_through_proxy, token_of
from tidemark.api.health import HealthHandler, HealthServer
from tidemark.api.producer_metrics import debezium_families, producer_families
from tidemark.api.sending import signal_of
from tidemark.status.metrics import CONTENT_TYPE, exposition, lag_families

if TYPE_CHECKING:
    from email.message import Message

    from producer.app import Producer
    from producer.source.retention import HeadRoom
    from schemas.settings import ServiceSettings
    from tidemark.status.lags import Lags

log = structlog.get_logger(__name__)

Insert = Callable[[str, str, str | None], None]
Describe = Callable[[], str]

READY_WITHIN_S: Final = 15.0
LARGEST_BODY: Final = 64 * 1024
_PASSED_OVER: Final = 1 << 20
"""Of a body that is too large so much is read further: hanging up earlier would lose the answer for a client that still sends."""
_MOST_SLOW: Final = 8
"""Those that ask Kafka or the source, which may be unreachable: a client that asks for health must not wait behind them."""
_IS_STANDBY: Final = "the producer stands by: another one of its name leads, or Kafka does not say yet which one does"


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Service:
    """Listens while it is entered. `watch` is called at every start of the producer (`producer.app.run`).

    `insert` puts a signal into the signal table, `describe` gives the status as JSON, `lags` how far the sinks are behind, without
    delay: empty where that is not known. `name` is the prefix of the topics, for Debezium's metrics. `describe_group` gives
    the members of the source's group as JSON; None without a group. Raises `ConfigError` when
    the port is taken or the token cannot be read.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        insert: Insert,
        describe: Describe,
        lags: Callable[[], Mapping[str, Lags]] = dict,
        name: str = "",
        describe_group: Describe | None = None,
    ) -> None:
        self._insert, self.describe, self.describe_group = insert, describe, describe_group
        self._token = token_of(settings)
        self._host = settings.host.lower()
        self._trusts_all = is_loopback(settings.host) and self._token is None
        self._producer: Producer | None = None
        self._standstill = Standstill()
        self._is_standby = False
        self._failures = 0
        self._in_kafka_ms = 0
        self._lags, self._name = lags, name
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._server = _Server(settings, self)
        self.port = self._server.port

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def watch(self, producer: Producer) -> None:
        """Report on this producer from now on."""
        self._producer = producer

    def waits(self, reason: str) -> None:
        """Note why the producer ended; it is started again shortly."""
        self._failures += 1
        self._standstill.note(reason, self._producer)

    def note_standby(self) -> None:
        """None runs here: what the last one saw is of no interest while another one leads."""
        self._producer, self._is_standby = None, True
        self._standstill.end()
        self._in_kafka_ms = 0

    def _counts(self) -> tuple[int, int]:
        """Return how many attempts have failed, and up to when everything is in Kafka (ms; 0: unknown), which no failure undoes."""
        producer = self._producer
        if producer is not None and producer.reader is not None:
            self._in_kafka_ms = max(self._in_kafka_ms, producer.reader.progress.times.in_kafka_ms)
        return self._failures, self._in_kafka_ms

    def metrics(self, *, has_debezium_names: bool) -> bytes:
        """Return the figures in Prometheus' text format."""
        producer, is_ready = self._producer, self.not_ready() is None
        failures, in_kafka_ms = self._counts()
        if has_debezium_names:
            families = debezium_families(producer, self._name, is_ready=is_ready, in_kafka_ms=in_kafka_ms)
            return exposition(families).encode()
        families = producer_families(producer, is_ready=is_ready, failures=failures, in_kafka_ms=in_kafka_ms)
        return exposition([*families, *lag_families(self._lags())]).encode() + generate_latest(self._process)

    @property
    def is_standby(self) -> bool:
        """Whether another producer of the name leads."""
        return self._is_standby

    def leads(self) -> None:
        """One is being started; `watch` will be called for it."""
        self._is_standby = False

    @property
    def head_room(self) -> HeadRoom | None:
        """What the producer saw of the source's log the last time it looked: an answer asks the source nothing."""
        producer = self._producer
        return None if producer is None or producer.retention is None else producer.retention.latest

    def not_ready(self) -> str | None:
        """Return why the log is not read at the moment; None while it is."""
        if self._is_standby:
            return _IS_STANDBY
        producer = self._producer
        if reason := self._standstill.reason(producer):
            return reason
        if reason := waits_in_group():
            return reason
        if producer is None or producer.reader is None:
            return "the producer is starting, or waits for source, Kafka or registry"
        silent_s = time.monotonic() - producer.reader.progress.alive_s
        if silent_s > READY_WITHIN_S:
            return f"the log reader has not moved for {silent_s:.0f} s"
        return None

    def accept_signal(self, document: object, authorization: str | None) -> str:
        """Put a signal into the signal table; its id. Raises `RefusedError`."""
        self._require_permission(authorization)
        try:
            signal_id, kind, data = signal_of(document, "http")
        except SignalError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
        try:
            self._insert(signal_id, kind, data)
        except ConfigError as error:
            raise RefusedError(HTTPStatus.CONFLICT, str(error)) from error
        except TidemarkError as error:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        return signal_id

    def require_own_name(self, headers: Message) -> None:
        """Refuse what a page of another origin asks of loopback by a name of its own, or anybody by a proxy (`RefusedError`).

        Such a page is in the browser of somebody on this machine; with a token it cannot ask for anything.
        """
        if not self._trusts_all:
            return
        reason = foreign_name(self._host, headers.get("Host"), headers.get("Origin"))
        if not reason and is_through_proxy(headers.keys()):
            reason = "the request comes through a proxy: without service.token only programs on this machine are answered"
        if reason:
            raise RefusedError(HTTPStatus.FORBIDDEN, reason)

    def _require_permission(self, authorization: str | None) -> None:
        if self._trusts_all:
            return
        if self._token is None:
            reason = (
                "signals are taken on loopback only until service.token or service.token_file is set; "
                "or INSERT the signal into the signal table"
            )
            raise RefusedError(HTTPStatus.FORBIDDEN, reason)
        given = (authorization or "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            reason = "the header Authorization: Bearer <service.token> is missing or wrong"
            raise RefusedError(HTTPStatus.UNAUTHORIZED, reason)


class _Server(HealthServer):
    def __init__(self, settings: ServiceSettings, service: Service) -> None:
        self.service = service
        self.slow_requests = threading.BoundedSemaphore(_MOST_SLOW)
        super().__init__("service.port", settings.host, settings.port, service.not_ready, _Handler)


class _Handler(HealthHandler):
    server: _Server
    unread = 0
    paths = "/livez, /readyz, /metrics, /api/v1/status, /api/v1/group (with order.group), POST /api/v1/signals"

    @override
    def _answer_at(self, path: str) -> None:
        service = self.server.service
        if path == "/metrics":
            has_debezium_names = "format=debezium" in self.path.partition("?")[2].split("&")
            self._send(HTTPStatus.OK, service.metrics(has_debezium_names=has_debezium_names), CONTENT_TYPE)
        elif path == "/api/v1/status":
            self._refusing(lambda: self._guarded(lambda: self._json(HTTPStatus.OK, service.describe())))
        elif path == "/api/v1/group" and (describe := service.describe_group) is not None:
            self._refusing(lambda: self._guarded(lambda: self._json(HTTPStatus.OK, describe())))
        else:
            super()._answer_at(path)

    def do_POST(self) -> None:  # noqa: N802 - the base class's name
        """Take a signal."""
        path = self.path.partition("?")[0]
        if path != "/api/v1/signals":
            self._no_such_path(path)
            return
        self._refusing(self._accept_signal)
        ends = time.monotonic() + self.timeout
        while self.unread > 0 and time.monotonic() < ends and (piece := self.rfile.read1(min(self.unread, LARGEST_BODY))):
            self.unread -= len(piece)

    def _accept_signal(self) -> None:
        document = self._body()  # before it takes a place: a client that sends slowly keeps nobody else waiting
        self.server.answered(self.request)

        def put() -> None:
            signal_id = self.server.service.accept_signal(document, self.headers.get("Authorization"))
            self._answer(HTTPStatus.ACCEPTED, {"id": signal_id})

        self._guarded(put)

    def _body(self) -> object:
        if self.headers.get_content_type() != "application/json":
            reason = "the header Content-Type: application/json is missing"
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise RefusedError(
                HTTPStatus.LENGTH_REQUIRED, "the header Content-Length is missing or no number"
            )
        if len(length) > 9 or int(length) > LARGEST_BODY:
            self.unread = _PASSED_OVER if len(length) > 9 else min(int(length), _PASSED_OVER)
            reason = f"the body is larger than {LARGEST_BODY} bytes"
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        try:
            document: object = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None
        return document

    def _guarded(self, answer: Callable[[], None]) -> None:
        """Answer what asks Kafka or the source, if not too many others do so now."""
        if not self.server.slow_requests.acquire(blocking=False):
            reason = f"{_MOST_SLOW} requests that ask Kafka or the source are being answered; retry"
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        try:
            answer()
        finally:
            self.server.slow_requests.release()

    def _refusing(self, answer: Callable[[], None]) -> None:
        """Answer, or say why not."""
        try:
            self.server.service.require_own_name(self.headers)
            answer()
        except RefusedError as error:
            self._answer(error.status, {"error": str(error)})
        except TidemarkError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
