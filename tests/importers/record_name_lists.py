"""`python -m tests.importers.record_name_lists`: what Debezium chooses for the connectors of `name_list_cases`, into its file."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from devservers.bundles import bundle_files
from tests.importers.name_list_cases import COLUMNS, RECORDED, names_of_tables, random_connectors
from tidemark.runtime import java_home


def main() -> None:
    """Compile the Java program against the connector's jars, ask it, and write the file."""
    jars = ":".join(str(jar) for jar in bundle_files("debezium", print))
    java = java_home(17) / "bin"
    source = Path(__file__).with_name("DebeziumNameLists.java")
    connectors = random_connectors()
    asked = [{"properties": one, "tables": names_of_tables(), "columns": COLUMNS} for one in connectors]
    with tempfile.TemporaryDirectory(prefix="tidemark-names-") as folder:
        given, answered = Path(folder, "given.json"), Path(folder, "answered.json")
        given.write_text(json.dumps(asked), "utf-8")
        command = [str(java / "java"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", jars, str(source), str(given), str(answered)]
        subprocess.run(command, check=True)
        answers = json.loads(answered.read_text("utf-8"))
    lines = [json.dumps({"properties": one, **_compact(answer)}, ensure_ascii=False) for one, answer in zip(connectors, answers, strict=True)]
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


def _compact(answer: dict[str, object]) -> dict[str, object]:
    """Return an answer with sets of names as bits, in the order of the cases."""
    if "error" in answer:
        return {"error": answer["error"]}
    tables = names_of_tables()
    columns = [f"{database}.{table}.{column}" for database, table in tables for column in COLUMNS]
    kept, masked = answer["tables"], answer["masks"]
    assert isinstance(kept, list)
    assert isinstance(masked, dict)
    written = answer["columns"]
    assert isinstance(written, list)
    return {
        "tables": _bits([list(one) in kept for one in tables]),
        "columns": _bits([one in set(written) for one in columns]),
        "nulls": answer["nulls"],
        "masked": {kind: _bits([masked.get(one) == kind for one in columns]) for kind in sorted(set(masked.values()))},
    }


def _bits(flags: list[bool]) -> str:
    return hex(int("".join("1" if flag else "0" for flag in flags), 2))


if __name__ == "__main__":
    main()
