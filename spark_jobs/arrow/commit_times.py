"""When the source committed the changes of a batch: `source.ts_ms` of its records, and what they did: `op`."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from schemas.errors import UnsupportedTypeError
from spark_jobs.arrow.arrow_decoder import ArrowDecoder, Judged
from spark_jobs.arrow.avro_program import AvroProgram, value_program
from spark_jobs.arrow.record_leaves import Ints, leaves_of

MOST_RECORDS: Final = 512
_TIME, _OPERATION = 1, 2
_SLOTS: Final = {("source", "ts_ms"): _TIME, ("op",): _OPERATION}


def commit_times_ms(decoder: ArrowDecoder, judged: Judged, winners: Ints) -> Ints:
    """Return the time in Unix milliseconds of winners at equal distances, at most `MOST_RECORDS`.

    Rows that a snapshot has read are left out, since nobody committed them then, and so are records whose schema has no time.
    """
    changes = winners[~judged.snapshot[winners]]
    if len(changes) > MOST_RECORDS:
        changes = changes[np.linspace(0, len(changes) - 1, MOST_RECORDS).astype(np.int64)]
    numbers, parts = judged.value_numbers[changes], [np.empty(0, np.int64)]
    for number in np.unique(numbers):
        program = _program(decoder.plan.value_writers[number][1])
        if program is not None:
            parts.append(_times(judged, changes[numbers == number], program))
    return np.concatenate(parts)


def ops_and_times(decoder: ArrowDecoder, judged: Judged, winners: Ints) -> tuple[pa.Array, pa.Array]:
    """Return the op of each winner, and the time as `decode.avro_records` has it: null for rows that a snapshot has read.

    `UnsupportedTypeError` for a schema whose records have no time.
    """
    source, numbers = judged.values, judged.value_numbers[winners]
    ops, times = np.zeros(len(winners), np.uint8), np.zeros(len(winners), np.int64)
    lacks = np.zeros(len(winners), np.bool_)
    for number in np.unique(numbers):
        program = _program(decoder.plan.value_writers[number][1])
        if program is None:
            raise UnsupportedTypeError("the schema has no source.ts_ms")
        own = np.flatnonzero(numbers == number)
        leaves = leaves_of(source, winners[own], program)
        ops[own], times[own] = source.data[leaves.values[_OPERATION]], leaves.values[_TIME]
        lacks[own] = leaves.sizes[_TIME] < 0
    lacks |= judged.snapshot[winners] | (ops == ord("r"))
    return pa.array(ops.view("S1").astype(np.str_)), pa.array(times, pa.int64(), mask=lacks)


def _times(judged: Judged, chosen: Ints, program: AvroProgram) -> Ints:
    leaves = leaves_of(judged.values, chosen, program)
    is_read = judged.values.data[leaves.values[_OPERATION]] == ord("r")
    times: Ints = leaves.values[_TIME]
    chosen_times: Ints = times[(leaves.sizes[_TIME] >= 0) & (times > 0) & ~is_read]
    return chosen_times


@lru_cache(1024)
def _program(text: str) -> AvroProgram | None:
    try:
        return value_program(text, _SLOTS)
    except UnsupportedTypeError:
        return None
