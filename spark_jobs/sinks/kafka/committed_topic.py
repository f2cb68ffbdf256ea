"""The topic of a target, with its commit: it is made once, and must stay the one that was made."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.errors import SinkError
from schemas.identity import TableName, Target
from spark_jobs.sinks.changelog_events import MADE
from spark_jobs.sinks.kafka.sink_commits import Mirrored, SinkCommit, SinkCommits
from spark_jobs.sinks.stamp import Stamp


class CommittedTopic:
    """A topic of a sink. `partitions` and `config` are those of a topic that is created."""

    def __init__(
        self, commits: SinkCommits, target: Target, topic: str, query_id: str, partitions: int, config: Mapping[str, str]
    ) -> None:
        self.commits = commits
        self.target = target
        self.name = topic
        self.query_id = query_id
        self._partitions = partitions
        self._config = config

    @property
    def rebuild(self) -> str:
        """What makes the target again."""
        return f"tidemark rebuild --sink {self.target.sink} {TableName.parse(self.target.name).plain}"

    def commit(self) -> SinkCommit | None:
        """Return the last commit; None where there is none."""
        return self.commits.of(self.target)

    def require_same(self, commit: SinkCommit, *, is_mirror: bool) -> None:
        """Raise `SinkError` unless the topic is the one of this commit, and is written as it was."""
        if (commit.mirrored is not None) != is_mirror:
            was = "changelog" if is_mirror else "mirror"
            raise SinkError(f"topic {self.name} was written with mode: {was}, and cannot be continued in another: {self.rebuild}")
        if commit.topic != self.name:
            raise SinkError(f"{self.target.name} was written to topic {commit.topic}, not to {self.name}: {self.rebuild}")
        client = self.commits.client
        found = client.topic_id(self.name)
        if found != commit.topic_id:
            how = "is gone" if found is None else "was deleted and created again"
            raise SinkError(f"topic {self.name} {how} since batch {commit.batch_id}: {self.rebuild}")
        if commit.mirrored is not None:
            then, now = commit.mirrored.partitions, client.partitions(self.name)
            if then != now:
                message = (
                    f"topic {self.name} had {then} partitions and has {now}: a row's next message would go to another one, where "
                    f"its order is lost. {self.rebuild}"
                )
                raise SinkError(message)

    def made(self, stamp: Stamp, *, is_mirror: bool) -> SinkCommit:
        """Create the topic, and commit that it is ours. `SinkError` for one with records of somebody else."""
        client = self.commits.client
        topic_id = client.create_topic(self.name, self._partitions, self._config)
        if not client.is_empty(self.name):
            message = (
                f"topic {self.name} has records that this merge job has not written: give another one (sinks.topic), or delete it"
            )
            raise SinkError(message)
        mirrored = Mirrored(-1, client.partitions(self.name)) if is_mirror else None
        record = SinkCommit(stamp.query_id, MADE, self.name, topic_id, mirrored=mirrored)
        with client.transaction() as transaction:
            self.commits.add(transaction, self.target, record)
        self.commits.note(self.target, record)
        return record
