"""What `tidemark up` asks before it starts anything: the source, and the servers that it does not start itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from devservers.processes import listening
from schemas.errors import TidemarkError
from tidemark.api.access import is_loopback
from tidemark.doctor.examination import AREA_S, OF_ALL, asked, gathered
from tidemark.local.local_servers import kafka_port, registry_port

if TYPE_CHECKING:
    from schemas.findings import Finding
    from schemas.settings import Settings

_LOOK_S: Final = 0.05


class NotReadyError(TidemarkError):
    """A server keeps the pipeline from running; the text has a line for each reason, with its fix."""


def require_ready(settings: Settings, stop: threading.Event) -> None:
    """Raise `NotReadyError` with all errors that `tidemark doctor` would report of these servers; return once `stop` is set."""
    names = ["source"]
    names += ["kafka"] if kafka_port(settings) is None else []
    names += ["registry"] if settings.format.registry and registry_port(settings) is None else []
    threads = asked({name: OF_ALL[name] for name in names}, settings)
    until_s = time.monotonic() + AREA_S
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until_s:
        if stop.wait(_LOOK_S):
            return
    errors = [one for one in gathered(threads, until_s).findings if one.is_error]
    if errors:
        raise NotReadyError("nothing was started:" + "".join(f"\n  * {_line(one, settings)}" for one in errors))


def _line(found: Finding, settings: Settings) -> str:
    host, _, port = settings.kafka.bootstrap_servers.split(",")[0].strip().rpartition(":")
    is_here = is_loopback(host.strip("[]")) and port.isdigit() and listening(int(port))
    return f"{found.text}; something listens there: is it Kafka?" if found.code == "kafka.unreachable" and is_here else found.text
