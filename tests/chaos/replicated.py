"""A primary and its replica, which swap roles: they are used where one server is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Self

from devservers import Database, start_database
from tests.support import replication

_PATIENCE_S: Final = 60


class ReplicatedDatabase:
    """Two servers of one kind with GTIDs; attributes and methods are those of the one that is written to."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.active = start_database(kind, _made(folder / "one"), replication.options_of(kind, 11, "binlog"))
        self.other = start_database(kind, _made(folder / "two"), replication.options_of(kind, 12, "two"))
        for server in self.servers:
            replication.prepare(server)
        replication.follow(self.other, self.active, former_primary=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.active, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()  # a replica, and who waits for one, takes its time to end
            server.close()

    @property
    def servers(self) -> tuple[Database, Database]:
        """Both."""
        return self.active, self.other

    def switch(self, *, kill: bool) -> None:
        """The replica takes over when it has everything; the former primary follows it, after a crash if `kill`."""
        old, new = self.active, self.other
        replication.forbid_writes(old)
        self.wait_for_replica()
        replication.stop_following(new)
        replication.allow_writes(new)
        self.active, self.other = new, old  # before the crash: a client that connects after it would write there
        if kill:
            old.kill()
            old.restart()
        replication.follow(old, new, former_primary=True)

    def wait_for_replica(self) -> None:
        """Wait until the replica has executed everything."""
        replication.wait_for_replica(self.other, self.active, _PATIENCE_S)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
