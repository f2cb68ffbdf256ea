"""Requests → answers: each view as HTML, its part that is renewed, and the same document as JSON.

=============================  =========================================================================================
`GET /`, `/tables`, …          a view; `GET /parts/<view>` the part of it that a browser asks for every two seconds
`GET /api/v1/<view>`           the document behind it, as JSON
`GET /schema/<table>`          the history of a table's columns; `/changes/<number>` a change with all its columns; `/sinks/<sink>`
                               the files of a sink, and its quarantine
`POST /snapshots/<action>`     start, stop, pause, resume; `POST /api/v1/signals` any signal, as JSON; `POST /sinks/<sink>/retry`
`GET /api/v1/signals/<id>`     what the producer answered to a signal of this page
`GET /livez`, `/readyz`        whether the process answers, and whether it knows how it is now
=============================  =========================================================================================
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from schemas.errors import ConfigError, SignalError, TidemarkError
from schemas.json_codec import encode
from tidemark.api.sending import lasting, send, signal_of
from tidemark.page import view_documents as documents
from tidemark.page.kept_schemas import history_document
from tidemark.page.live_changes import wanted
from tidemark.page.page_signals import PREFIX, SENT, signal_of_form
from tidemark.page.pictures import pictures_of
from tidemark.page.rendering import Templates
from tidemark.page.sink_details import files_of, is_writable, quarantine_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from schemas.settings import Settings
    from tidemark.page.page_facts import Facts
    from tidemark.page.parts import Parts
    from tidemark.page.sign_in import Access, Refusal

Read = Callable[["Request"], Awaitable[Any]]
_OF_THEIR_OWN: Final = ("changes", "checks", "schema", "tasks")
VIEWS: Final = ("overview", "tables", "changes", "snapshots", "schema", "sinks", "tasks", "checks", "problems")
_FOLDER: Final = Path(__file__).parent
_ANSWER_S: Final = 30.0
_BODY_S: Final = 10.0
_GUESS_S: Final = 0.5
"""So long takes a wrong token, one after the other."""
_LARGEST_BODY: Final = 64 * 1024
_MOST_SLOW: Final = 8
_MOST_ACTING: Final = 4
_MOST_GUESSES: Final = 4
_MOST_CHANGES: Final = 100
_MINUTES: Final = (5, 15, 60)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser sends its own forms with Origin: null
    "Cache-Control": "no-store",
}


class Views:
    """The application. `parts` read the pipeline, `access` says who may read and act."""

    def __init__(self, settings: Settings, parts: Parts, access: Access) -> None:
        self._settings, self._parts, self._access = settings, parts, access
        self._templates = Templates(_FOLDER / "templates")
        self._slow, self._acting = asyncio.Semaphore(_MOST_SLOW), asyncio.Semaphore(_MOST_ACTING)
        self._guesses = asyncio.Semaphore(_MOST_GUESSES)
        self._guess = asyncio.Lock()
        history = parts.facts.history
        self._of_facts: Mapping[str, Callable[[Facts], Any]] = {
            "overview": lambda facts: documents.overview(settings, facts, history),
            "snapshots": documents.snapshots,
            "sinks": lambda facts: documents.sinks(settings, facts, history),
        }
        self._of_requests: Mapping[str, Read] = {
            "tables": self._tables,
            "changes": self._changes,
            "schema": self._schemas,
            "checks": self._checks,
            "tasks": self._tasks,
            "problems": self._problems,
        }

    def application(self) -> Starlette:
        """Return the application for an ASGI server."""
        routes = [
            Route("/livez", self._guarded(self._alive, is_open=True)),
            Route("/readyz", self._guarded(self._ready, is_open=True)),
            Route("/sign-in", self._guarded(self._sign_in, is_open=True), methods=["GET", "POST"]),
            Route("/sign-out", self._guarded(self._sign_out, acts=True), methods=["POST"]),
            Route("/api/v1/signals", self._guarded(self._signal, acts=True), methods=["POST"]),
            Route("/api/v1/signals/{signal}", self._guarded(self._answer)),
            Route("/snapshots/{action}", self._guarded(self._act, acts=True), methods=["POST"]),
            Route("/api/v1/schema/{table:path}", self._guarded(self._single_json(self._table_history))),
            Route("/schema/{table:path}", self._guarded(self._single("history", "schema", self._table_history))),
            Route("/api/v1/sinks/{sink}", self._guarded(self._single_json(self._sink))),
            Route("/sinks/{sink}", self._guarded(self._single("sink", "sinks", self._sink))),
            Route("/sinks/{sink}/retry", self._guarded(self._retry, acts=True), methods=["POST"]),
            Route("/changes/{number:int}", self._guarded(self._single("change", "changes", self._change))),
            *(Route(f"/api/v1/{name}", self._guarded(self._json(name))) for name in VIEWS),
            *(Route(f"/parts/{name}", self._guarded(self._view(name, is_part=True))) for name in VIEWS),
            *(Route("/" if name == "overview" else f"/{name}", self._guarded(self._view(name))) for name in VIEWS),
            Mount("/static", StaticFiles(directory=_FOLDER / "static")),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: self._failed, Exception: self._failed})

    # ── who may, and for how long ─────────────────────

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]], *, acts: bool = False, is_open: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            refusal = None
            if acts:
                refusal = self._access.refusal_to_act(request)
            elif not is_open:
                refusal = self._access.refusal_to_read(request)
            if refusal is None and acts:
                refusal = self._access.refusal_to_read(request)  # a session does not excuse a foreign name of loopback
            if refusal is not None:
                return self._refused(request, refusal)
            try:
                async with asyncio.timeout(_ANSWER_S):
                    response = await answer(request)
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it
            except TimeoutError:
                return self._refused(request, (HTTPStatus.SERVICE_UNAVAILABLE, f"there was no answer within {_ANSWER_S:.0f} s"))
            except (ConfigError, SignalError) as error:
                return self._refused(request, (HTTPStatus.BAD_REQUEST, str(error)))
            except TidemarkError as error:
                return self._refused(request, (HTTPStatus.SERVICE_UNAVAILABLE, str(error)))
            response.headers.update(_HEADERS)
            return response

        return guarded

    def _refused(self, request: Request, refusal: Refusal) -> Response:
        status, reason = refusal
        if _wants_json(request):
            return JSONResponse({"error": reason}, status, _HEADERS)
        if status is HTTPStatus.UNAUTHORIZED and request.method == "GET":
            return RedirectResponse("/sign-in", HTTPStatus.SEE_OTHER, _HEADERS)
        body = self._templates.page("refused", self._context(request, "") | {"status": status.value, "reason": reason})
        return HTMLResponse(body, status, _HEADERS)

    def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return self._refused(request, (HTTPStatus(error.status_code), str(error.detail)))
        return self._refused(request, (HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: see the log of `tidemark page`"))

    async def _in_thread(self, work: Callable[[], Any], slots: asyncio.Semaphore | None = None) -> Any:
        """Run what asks Kafka, a registry or the source; a few at once.

        A request that has waited long enough is answered, but its thread works on: its slot is free when the thread is.
        """
        slots = slots or self._slow

        def free(done: asyncio.Future[Any]) -> None:
            slots.release()
            if not done.cancelled():
                done.exception()  # it was asked for: nobody may wait for it any more

        await slots.acquire()
        running = asyncio.ensure_future(run_in_threadpool(work))
        running.add_done_callback(free)
        return await asyncio.shield(running)

    # ── the forms of a view ───────────────────────────

    def _context(self, request: Request, view: str) -> dict[str, Any]:
        watch = self._parts.facts
        fresh = documents.freshness(watch.latest, watch.age_s, watch.trouble, is_of_now=watch.is_of_now)
        return {
            "name": self._settings.name,
            "view": view,
            "views": VIEWS,
            "fresh": fresh,
            "may_act": self._access.is_known(request),
            "needs_token": self._access.is_made_here,
        }

    def _json(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            document = await self._document(name, request)
            fresh = self._context(request, name)["fresh"]
            if name in _OF_THEIR_OWN:  # they are of another time than the facts
                fresh = {key: document.get(key, fresh[key]) for key in ("as_of_ms", "unknown")}
            return _json({**fresh, name: document})

        return answer

    def _view(self, name: str, *, is_part: bool = False) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            document = await self._document(name, request)
            context = self._context(request, name) | {"document": document, "query": dict(request.query_params)}
            sent = request.query_params.get("sent", "")
            sent = sent if SENT.fullmatch(sent) else ""
            context |= {"sent": sent, "channel": lasting(self._settings), "answer": self._parts.answers.of(sent) if sent else None}
            if document is not None:
                context |= pictures_of(name, document, self._parts, _minutes(request))
            body = self._templates.part(name, context) if is_part else self._templates.page(name, context)
            return HTMLResponse(body)

        return answer

    def _single(self, template: str, view: str, read: Read) -> Callable[[Request], Awaitable[Response]]:
        """Return the answer with one thing of a view as a page of its own."""

        async def answer(request: Request) -> Response:
            context = self._context(request, view) | {"document": await read(request)}
            return HTMLResponse(self._templates.page(template, context))

        return answer

    @staticmethod
    def _single_json(read: Read) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return _json(await read(request))

        return answer

    # ── documents ─────────────────────────────────────

    async def _document(self, name: str, request: Request) -> Any:
        if name in self._of_requests:
            return await self._of_requests[name](request)
        facts = self._facts()
        return None if facts is None else self._of_facts[name](facts)

    async def _tables(self, request: Request) -> Any:
        facts = self._facts()
        if facts is None:
            return None
        try:
            versions = (await self._in_thread(self._parts.schemas.latest)).versions
        except TidemarkError:
            versions = {}  # the versions are then unknown; the rest of a table is not
        part = request.query_params.get("q", "").casefold()
        return [one for one in documents.tables(facts, versions) if part in one["table"].casefold()]

    async def _changes(self, request: Request) -> Any:
        query = request.query_params
        live = self._parts.changes
        found = live.newest()
        shown = wanted(found, query.get("table", ""), query.get("op", ""), query.get("key", ""), _MOST_CHANGES)
        trouble = live.trouble or ("" if live.read_ms else "the first changes are being read")
        return {
            "changes": [encode(one) for one in shown],
            "kept": len(found),
            "as_of_ms": live.read_ms,
            "unknown": trouble and f"{trouble}.",
        }

    async def _schemas(self, _request: Request) -> Any:
        topic = await self._in_thread(self._parts.schemas.latest)
        return {
            "as_of_ms": topic.read_ms,
            "unknown": "",
            "missing": topic.missing or None,
            "tables": [{"table": name, "version": one.version} for name, one in topic.histories.items()],
        }

    async def _checks(self, request: Request) -> Any:
        return self._parts.checks.latest(again="again" in request.query_params)

    async def _tasks(self, _request: Request) -> Any:
        return documents.tasks(self._parts.replication.latest)

    async def _problems(self, _request: Request) -> Any:
        facts, replication = self._facts(), self._parts.replication.latest
        return [*([] if facts is None else documents.problems(facts)), *documents.problems_of_tasks(replication)]

    def _facts(self) -> Facts | None:
        """Return the newest facts, as unknown if they are too old; None before the first one."""
        facts, unknown = self._parts.facts.latest, self._unknown()
        return facts.as_unknown(unknown) if facts is not None and unknown else facts

    def _unknown(self) -> str:
        watch = self._parts.facts
        return str(documents.freshness(watch.latest, watch.age_s, watch.trouble, is_of_now=watch.is_of_now)["unknown"])

    # ── single things ─────────────────────────────────

    async def _table_history(self, request: Request) -> dict[str, Any]:
        table = request.path_params["table"]
        topic = await self._in_thread(self._parts.schemas.latest)
        history = topic.history(table)
        if history is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, topic.missing or f"the schema-change topic has no table {table[:100]!r}")
        return {"as_of_ms": topic.read_ms, **history_document(history)}

    def _sink_of(self, request: Request) -> Settings:
        name = request.path_params["sink"]
        if name not in [sink.name for sink in self._settings.sinks]:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"the settings have no sink {name[:100]!r}")
        return self._settings.of_sink(name)

    async def _sink(self, request: Request) -> dict[str, Any]:
        one = self._sink_of(request)
        name = one.sink.name
        return {
            "name": name,
            "mode": one.sink.mode,
            "can_retry": one.sink.mode == "mirror" and is_writable(one),
            "files": await self._in_thread(lambda: files_of(one)),
            "quarantine": await self._in_thread(lambda: quarantine_of(one)),
            "retry": self._parts.retries.latest(name),
        }

    async def _change(self, request: Request) -> Any:
        number = request.path_params["number"]
        found = next((one for one in self._parts.changes.newest() if one.number == number), None)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"change {number} is not kept any more")
        return encode(found)

    async def _alive(self, _request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _ready(self, _request: Request) -> Response:
        unknown = self._unknown()
        return JSONResponse({"error": unknown}, HTTPStatus.SERVICE_UNAVAILABLE) if unknown else JSONResponse({"status": "ready"})

    # ── acting ────────────────────────────────────────

    async def _sign_in(self, request: Request) -> Response:
        wrong = False
        if request.method == "POST":
            form = await _form(request)
            session = self._access.sign_in(form.get("token", ""))
            if session is not None:
                response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
                response.set_cookie(
                    self._access.cookie, session, httponly=True, samesite="strict", secure=self._access.is_secure(request)
                )
                return response
            wrong = True
            if self._guesses.locked():
                raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "too many wrong tokens at once: wait for some seconds")
            async with self._guesses, self._guess:
                await asyncio.sleep(_GUESS_S)
        body = self._templates.page("sign_in", self._context(request, "") | {"wrong": wrong})
        return HTMLResponse(body, HTTPStatus.UNAUTHORIZED if wrong else HTTPStatus.OK)

    async def _sign_out(self, request: Request) -> Response:
        self._access.sign_out(request)
        return RedirectResponse("/", HTTPStatus.SEE_OTHER)

    async def _act(self, request: Request) -> Response:
        action = request.path_params["action"]
        signal = signal_of(signal_of_form(action, await _form(request)), PREFIX)
        return RedirectResponse(f"/snapshots?sent={await self._send(signal)}", HTTPStatus.SEE_OTHER)

    async def _retry(self, request: Request) -> Response:
        one = self._sink_of(request)
        if one.sink.mode != "mirror":
            raise ConfigError("records of a changelog are not retried: snapshot their tables again")
        if not is_writable(one):
            raise ConfigError(f"this process may not write to {one.sink.service_path}: retry where the merge job runs")
        table = (await _form(request)).get("table", "")
        self._parts.retries.begin(one.sink.name, [re.escape(table)] if table else [])
        return RedirectResponse(f"/sinks/{one.sink.name}", HTTPStatus.SEE_OTHER)

    async def _answer(self, request: Request) -> Response:
        signal_id = request.path_params["signal"]
        return JSONResponse({"id": signal_id, **self._parts.answers.of(signal_id)})

    async def _signal(self, request: Request) -> Response:
        signal = signal_of(await _json_body(request), PREFIX)
        return JSONResponse({"id": await self._send(signal)}, HTTPStatus.ACCEPTED)

    async def _send(self, signal: tuple[str, str, str | None]) -> str:
        """Send a signal (id, type, data) by a channel that the producer reads, and return its id; errors as `sending.send`."""
        channel = lasting(self._settings)
        put = partial(self._parts.answers.send, signal[0], partial(send, channel, self._settings, *signal))
        await self._in_thread(put, self._acting)
        return signal[0]


def _minutes(request: Request) -> int:
    asked = request.query_params.get("minutes", "")
    return int(asked) if asked in {str(one) for one in _MINUTES} else _MINUTES[1]


def _wants_json(request: Request) -> bool:
    return request.url.path.startswith(("/api/", "/livez", "/readyz"))


def _json(document: Any) -> Response:
    return Response(json.dumps(document, ensure_ascii=False, default=str), media_type="application/json")


async def _body(request: Request) -> bytes:
    """Return the body; it must be small and come soon."""
    found = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for piece in request.stream():
                found += piece
                if len(found) > _LARGEST_BODY:
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {_LARGEST_BODY} bytes")
    except TimeoutError:
        raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {_BODY_S:.0f} s") from None
    return bytes(found)


async def _json_body(request: Request) -> object:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the header Content-Type: application/json is missing")
    try:
        document: object = json.loads(await _body(request))
    except (ValueError, RecursionError) as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None
    return document


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form as a browser sends it."""
    from urllib.parse import parse_qsl

    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the form is not URL-encoded")
    try:
        return dict(parse_qsl((await _body(request)).decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the form cannot be read: {error}") from None
