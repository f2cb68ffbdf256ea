"""When the source committed the changes of a batch: `source.ts_ms` of some of its records."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from schemas.errors import UnsupportedTypeError
from spark_jobs.arrow import avro_kernels as kernels
from spark_jobs.arrow.arrow_decoder import ArrowDecoder, Ints, Judged
from spark_jobs.arrow.avro_program import Program, value_program

MOST_RECORDS: Final = 512
_TIME, _OPERATION = 1, 2
_SLOTS: Final = {("source", "ts_ms"): _TIME, ("op",): _OPERATION}
_SCRATCH: Final = 16


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


def _times(judged: Judged, chosen: Ints, program: Program) -> Ints:
    source = judged.values
    shape = (program.slots, len(chosen))
    values, sizes = np.empty(shape, np.int64), np.empty(shape, np.int64)
    scratch = np.zeros((3, max(program.slots, _SCRATCH)), np.int64)
    kernels.read_leaves(source.data, source.starts, source.sizes, chosen, program.code, scratch, values, sizes)
    is_read = source.data[values[_OPERATION]] == ord("r")
    times: Ints = values[_TIME][(sizes[_TIME] >= 0) & (values[_TIME] > 0) & ~is_read]
    return times


@lru_cache(1024)
def _program(text: str) -> Program | None:
    try:
        return value_program(text, _SLOTS)
    except UnsupportedTypeError:
        return None
