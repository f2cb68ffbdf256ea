"""A schema registry that shows the first version of each subject only: a proxy in front of the real one."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

_LATEST: Final = re.compile(r"(/subjects/[^/]+/versions)/latest")
_LIST: Final = re.compile(r"/subjects/[^/]+/versions")
_TIMEOUT_S: Final = 30


class HiddenVersions:
    """A registry at `url`, to be read from. Use it in a `with` statement."""

    def __init__(self, behind: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                latest = _LATEST.fullmatch(self.path)
                status, body = _answer(behind.rstrip("/") + (f"{latest[1]}/1" if latest else self.path))
                if status == 200 and _LIST.fullmatch(self.path):
                    body = json.dumps(json.loads(body)[:1]).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                with suppress(ConnectionError):  # who asked may be killed
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="hidden-versions", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:  # noqa: S310 - a loopback registry
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except OSError as error:
        return 503, json.dumps({"error_code": 503, "message": str(error)}).encode()
