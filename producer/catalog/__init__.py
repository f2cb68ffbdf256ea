"""Tables of the source: TABLE_MAP events and DDL texts enter, table versions and the effects of DDL leave.

The log's metadata is the truth about columns, DDL text a hint, information_schema the fallback; where the log names no
columns, tables are followed through DDL text (`TrackedTables`). The reader of the log owns the `Catalog`; chunk readers
ask `information_schema`.
"""

from producer.catalog.catalog import Catalog, TableVersion
from producer.catalog.tracking import TrackedTables

__all__ = ["Catalog", "TableVersion", "TrackedTables"]
