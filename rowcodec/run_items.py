"""The columns of `RowsOfRun.items`: one row for each rows event in a run of small transactions (pure).

The log reader fills them (`producer.binlog.run_kernels`), `encode_run` reads them.
"""

from __future__ import annotations

from typing import Final

I_TABLE: Final = 0  # row of `tables`
I_KIND: Final = 1  # the event's type
I_START: Final = 2  # first byte of the rows in the buffer
I_END: Final = 3
I_BEGAN: Final = 4  # offset of the transaction in the log file
I_POS: Final = 5  # offset of the event in the log file
I_TS_US: Final = 6
I_SERVER_ID: Final = 7
I_THREAD: Final = 8  # -1: not known
I_UUID: Final = 9  # first byte of the GTID's UUID in the buffer; or NO_GTID, DOMAIN_GTID
I_NUMBER: Final = 10
I_DOMAIN: Final = 11  # MariaDB: replication domain and server id of the GTID
I_ORIGIN: Final = 12
I_ORDINAL: Final = 13  # of its first row; 0 as long as it is not known
ITEM: Final = 14

NO_GTID: Final = -1
DOMAIN_GTID: Final = -2
