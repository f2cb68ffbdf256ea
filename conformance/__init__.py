"""Two prefixes in Kafka, of Debezium and of Tidemark or of two Tidemarks, compared record by record.

::

    <left>.…  ─→ read in the order of the log ─┐
                                               ├─→ paired by key ─→ compared ─→ a report
    <right>.… ─→ read in the order of the log ─┘

What enters: two prefixes, a broker, a registry. What leaves: a `Report`. The left side is the one to be equal to, the
right side is Tidemark's. `comparison` and `differences` hold what equal means, `pairing` which records belong together;
all three do no I/O. `make conformance` compares with them, too.
"""

from conformance.prefixes import Report, compare_prefixes

__all__ = ["Report", "compare_prefixes"]
