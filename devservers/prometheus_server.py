"""Prometheus, from Debian's package, for the test of our alert rules and of the board."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

from devservers.packages import one_package
from devservers.processes import Server, free_port
from schemas.overriding import override

log = logging.getLogger(__name__)

SUITE: Final = "bookworm"


class Prometheus(Server):
    """A server with a configuration file of ours. `query` and `alerts` ask it over HTTP."""

    def __init__(self, run_dir: Path, config: Path) -> None:
        super().__init__("prometheus", run_dir)
        self.port = 0
        self._config = config
        self._binaries = one_package("prometheus", SUITE, "prometheus", log.info) / "usr" / "bin"

    @property
    def promtool(self) -> Path:
        """The tool that checks rules."""
        return self._binaries / "promtool"

    @property
    def url(self) -> str:
        """Base of its API."""
        return f"http://{self.host}:{self.port}/api/v1"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now: `metric` (labels) and `value` (time, text)."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def alerts(self) -> dict[str, str]:
        """Return the alerts that are pending or firing, and which of both."""
        return {one["labels"]["alertname"]: one["state"] for one in self._get("alerts")["alerts"]}

    def _get(self, what: str, **parameters: str) -> Any:
        url = f"{self.url}/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - http
            return json.load(answer)["data"]

    @override
    def _choose_ports(self) -> None:
        self.port = free_port()

    @override
    def _command(self) -> list[str]:
        return [
            str(self._binaries / "prometheus"), f"--config.file={self._config}", f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={self.host}:{self.port}", "--log.level=warn",
        ]  # fmt: skip

    @override
    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def start_prometheus(run_dir: Path, config: Path) -> Prometheus:
    """Start a server with its files under `run_dir/prometheus`.

    Raises DevServerError when its package is unavailable, ServerStartError with the end of the log otherwise.
    """
    return Prometheus(Path(run_dir), config).start()
