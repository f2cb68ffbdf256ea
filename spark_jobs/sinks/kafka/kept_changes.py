"""The messages of a mirror's steps, durable before the step changes the rows, until they are sent.

Each step has a number, a folder of Parquet files with keys and values of messages, and a document that names them. The steps of a
target are in order, so all but the last have changed the rows. Of the last one the newest commit of the rows says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.json_codec import decode, encode
from spark_jobs.formats.event_texts import KEY, VALUE
from spark_jobs.sinks.arrival import require_all
from spark_jobs.store.sink_layout import SinkLayout

CHANGES: Final = "changes"
_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class KeptStep:
    """A step: its number, whose step of which batch it is, the columns of the identity, and how many messages each part has."""

    number: int
    batch_id: int
    step: str
    keys: tuple[str, ...]
    messages: tuple[int, ...]


class KeptChanges:
    """The kept steps of one target. `folder` is the target's below the sink."""

    def __init__(self, layout: SinkLayout, folder: str) -> None:
        self._files = layout.files
        self._folder = f"{CHANGES}/{folder}"
        self._known: list[KeptStep] | None = None

    @property
    def steps(self) -> list[KeptStep]:
        """The steps in their order. `SinkError` if one is missing between others."""
        if self._known is None:
            names = [name.removesuffix(".json") for name in self._files.names(self._folder) if name.endswith(".json")]
            numbers = sorted(int(name) for name in names if name.isdigit())
            if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
                raise SinkError(f"{self._files.location(self._folder)} has steps {numbers}: some between them are missing")
            self._known = [self._read(number) for number in numbers]
        return self._known

    @property
    def last(self) -> int:
        """The number of the last step; -1 for none."""
        return self.steps[-1].number if self.steps else -1

    def settle(self, durable: int) -> None:
        """Remove the last step unless it has changed the rows. `durable` is the last number of which that is known.

        `SinkError` where more than one step would have to be removed: the rows are older than the steps.
        """
        if self.last > durable + 1 and self.steps[0].number <= durable:
            message = (
                f"{self._files.location(self._folder)} has changes up to step {self.last}, and the rows are those of step "
                f"{durable}: the table of the rows was put back"
            )
            raise SinkError(message)
        while self.last > durable:
            self._remove(self.steps.pop())

    def drop(self, batch_id: int, sent: int) -> None:
        """Remove steps of earlier batches that are sent. The last one stays: its number and its identity are asked for."""
        while len(self.steps) > 1 and self.steps[0].batch_id < batch_id and self.steps[0].number <= sent:
            self._remove(self.steps.pop(0))

    def release(self, sent: int) -> None:
        """Remove the messages of steps that are sent. The steps stay: a batch that is run again asks for them."""
        for step in self.steps:
            if step.number <= sent:
                self._files.remove(self._path(step.number))

    def remove(self) -> None:
        """Remove all steps."""
        self._files.remove(self._folder)
        self._known = None

    def has(self, step: str, batch_id: int) -> bool:
        """Return whether there is a step of this name and batch. After `settle` it has changed the rows."""
        return any((one.step, one.batch_id) == (step, batch_id) for one in self.steps)

    def keep(self, step: str, batch_id: int, keys: Sequence[str], parts: Sequence[DataFrame]) -> KeptStep:
        """Keep the messages of the next step, with `KEY` and `VALUE`, part after part."""
        number = self.last + 1
        self._files.remove(self._path(number))
        counts = []
        for part, rows in enumerate(parts):
            folder = f"{self._path(number)}/{part}"
            counted = Observation()
            measured = rows.select(KEY, VALUE).observe(counted, F.count(F.lit(1)).alias("count"))
            measured.write.mode("overwrite").parquet(self._files.location(folder))
            written, found = counted.get.get("count", 0), sum(file.metadata.num_rows for file in self._parquet(folder))
            require_all(f"messages to {self._files.location(folder)}", written, found)
            counts.append(found)
        kept = KeptStep(number, batch_id, step, tuple(keys), tuple(counts))
        self._files.write(f"{self._path(number)}.json", json.dumps(encode(kept), separators=(",", ":"), ensure_ascii=False))
        self.steps.append(kept)
        return kept

    def messages(self, step: KeptStep) -> Iterator[tuple[str, str]]:
        """Yield keys and values of the messages of a step, in their order. `SinkError` if they are not what was kept."""
        for part, count in enumerate(step.messages):
            folder = f"{self._path(step.number)}/{part}"
            found = 0
            for file in self._parquet(folder) if count else ():
                for batch in file.iter_batches(_AT_ONCE):
                    found += batch.num_rows
                    yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            if found != count:
                raise SinkError(f"{self._files.location(folder)} has {found} messages, and not the {count} that were kept there")

    def _parquet(self, folder: str) -> Iterator[pq.ParquetFile]:
        for name in sorted(self._files.names(folder)):
            if name.startswith("part-"):
                with pq.ParquetFile(self._files.location(f"{folder}/{name}")) as file:
                    yield file

    def _read(self, number: int) -> KeptStep:
        try:
            return decode(KeptStep, json.loads(self._files.read(f"{self._path(number)}.json")))
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(f"{self._files.location(self._path(number))}.json is no step of a mirror: {error}") from error

    def _remove(self, step: KeptStep) -> None:
        self._files.remove(self._path(step.number))
        self._files.remove(f"{self._path(step.number)}.json")

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number}"
