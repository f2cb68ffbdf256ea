"""A browser without a window: what the page answers to requests, with a cookie where somebody signed in."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)


class PageClient:
    """Asks one page. `token` is what signs in."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port, self.token = port, token
        self.cookie = ""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, headers)

    def json(self, name: str, query: str = "") -> Any:
        """The document of a view."""
        answer = self.get(f"/api/v1/{name}{query}")
        assert answer.status == 200, answer
        return answer.document[name]

    def word(self) -> str:
        """The word of the only sink."""
        (sink,) = self.json("overview")["sinks"]
        return str(sink["word"])

    def row(self, table: str) -> dict[str, Any]:
        """What the list of the tables has of one."""
        return next(one for one in self.json("tables") if one["table"] == table)

    def post(self, path: str, form: dict[str, str], **headers: str) -> Answer:
        known = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.origin, **headers}
        return self.ask("POST", path, urllib.parse.urlencode(form).encode(), known)

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=35)
        try:
            cookie = {"Cookie": self.cookie} if self.cookie else {}
            connection.request(method, path, body, {**cookie, **headers})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def sign_in(self) -> Answer:
        answer = self.post("/sign-in", {"token": self.token})
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def wait_for_look(self, seconds: float = 30.0) -> None:
        """Wait until the page shows a look that began after this call: all that is true now is in it."""
        asked_ms = time.time_ns() // 1_000_000
        deadline = time.monotonic() + seconds
        while ((found := self.get("/api/v1/overview").document)["as_of_ms"] or 0) <= asked_ms or found["unknown"]:
            assert time.monotonic() < deadline, f"no look since {asked_ms}: {json.dumps(found)[:3000]}"
            time.sleep(0.3)

    def wait(self, what: str, name: str, until: Callable[[Any], bool], seconds: float = 180.0) -> Any:
        """Ask for the document of a view until something holds."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.json(name)
            if found is not None and until(found):
                return found
            assert time.monotonic() < deadline, f"{what}: {json.dumps(found)[:3000]}"
            time.sleep(0.3)


def page_of_log(log_path: Path, seconds: float = 30.0) -> PageClient:
    """The page that `tidemark page` said it serves, and the token that it printed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        text = log_path.read_text("utf-8") if log_path.exists() else ""
        at, token = (re.search(pattern, text) for pattern in (r"page: http://[^:]+:(\d+)/", r"with the token (\S+)"))
        if at and (token or "page.listening" in text):
            return PageClient(int(at[1]), token[1] if token else "")
        time.sleep(0.1)
    raise AssertionError(log_path.read_text("utf-8") if log_path.exists() else "no log")
