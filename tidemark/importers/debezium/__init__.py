"""Moving in from Debezium: a connector's properties and offset enter, our YAML and a list of what has no equivalent leave."""

from tidemark.importers.debezium.offsets import StartAt, parse_offset
from tidemark.importers.debezium.properties import read_properties
from tidemark.importers.debezium.translate import translate
from tidemark.importers.key_ledger import ImportFinding, Translation

__all__ = ["ImportFinding", "StartAt", "Translation", "parse_offset", "read_properties", "translate"]
