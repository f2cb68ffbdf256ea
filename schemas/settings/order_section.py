"""The section `order`: commit records, by which a reader brings the changes of many sources into one order."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.settings.declaration import setting
from schemas.settings.text_forms import topic_part


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSettings:
    """Whether commit records are written, and how often time passes in them."""

    group: str | None = setting(
        None,
        help="name of the sources whose transactions a reader brings into one order: the producer writes a commit record "
        "with each Kafka transaction, in the topic `<name>.commits`. A table that cannot be published then stops the producer, "
        "whatever `on_table_error` says; truncates are published, and signals are heard from Kafka, too",
        form=topic_part,
    )
    heartbeat_ms: int = setting(
        1_000,
        help="with `group`: milliseconds from one reading of the source's clock to the next; readers of several sources wait about "
        "that long for one without changes",
        minimum=100,
        maximum=60_000,
    )
    correct_skew: bool = setting(
        default=False,
        help="with `group`: times of transactions are by the clock of the producer's machine, not by the one of the server: "
        "the producer measures the difference, and commit records have it. Synchronise the machines of all producers (NTP)",
    )
