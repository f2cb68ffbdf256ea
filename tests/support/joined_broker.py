"""A second broker beside one that is also the controller: a cluster in which topics can have two copies."""

from __future__ import annotations

import re
from pathlib import Path

from devservers import Kafka
from schemas.overriding import override


class JoinedBroker(Kafka):
    """A broker without a controller of its own: it belongs to the cluster of `first`."""

    def __init__(self, run_dir: Path, first: Kafka) -> None:
        super().__init__(run_dir, properties={"node.id": "2", "process.roles": "broker"})
        self._first = first

    @override
    def _prepare(self) -> None:
        super()._prepare()
        properties = self.folder / "server.properties"
        voters = re.search(r"^controller\.quorum\.voters=.*$", (self._first.folder / "server.properties").read_text(), re.MULTILINE)
        assert voters is not None
        listeners = f"listeners=PLAINTEXT://{self.bootstrap_servers}\nadvertised.listeners=PLAINTEXT://{self.bootstrap_servers}\n"
        with properties.open("a") as file:  # the last of several is taken
            file.write(f"{voters[0]}\n{listeners}")
        theirs = (self._first.data_dir / "meta.properties").read_text()
        cluster = re.search(r"^cluster\.id=.*$", theirs, re.MULTILINE)
        assert cluster is not None
        meta = self.data_dir / "meta.properties"
        text = re.sub(r"(?m)^cluster\.id=.*$", cluster[0], meta.read_text())
        meta.write_text(re.sub(r"(?m)^node\.id=.*$", "node.id=2", text))
