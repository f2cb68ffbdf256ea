"""The sections `route` and `transform` of a Flink CDC pipeline to `routes` and `transforms` of a sink."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from schemas.errors import ConfigError
from schemas.settings import RouteSettings, TransformSettings
from schemas.settings.route_section import check_routes
from tidemark.importers.flink_cdc.expressions import alias_of, is_metadata, names_in, split_items, translated
from tidemark.importers.flink_cdc.table_patterns import table_pattern
from tidemark.importers.key_ledger import Ledger, has_setting

_PARTS: Final = 2
_LEFT_OUT: Final = "the column is left out"
_KEY_OF_TOPIC: Final = "records of a topic have it as their key if the key of the source is in it; else `tidemark plan` refuses it"
_NOT_DIVIDED: Final = "a topic is divided by the keys of its records"
_MARKED: Final = "{} is true in rows that are deleted; a TRUNCATE, a DROP and a snapshot mark rows there alone"
_SEVERAL: Final = (
    "a table that an earlier rule matches, too, has that one alone here; in Flink CDC a row has the first whose filter it passes: "
    "write one rule, with both filters joined by OR"
)
_PLAIN: Final = re.compile(r"[\w$-]+\\.[\w$-]+")
_OPTION: Final = re.compile(r"\s*=\s*")


class RuleTranslation:
    """Translates routes and transforms. `own` and `models` are the names of functions and of AI models, in lower case."""

    def __init__(self, ledger: Ledger, own: frozenset[str], models: frozenset[str]) -> None:
        self._ledger = ledger
        self._own = own
        self._models = models

    def routes(self) -> None:
        """Translate every route; one that cannot be is reported."""
        written = 0
        for rule in self._rules("route"):
            if self._route(rule, written):
                written += 1
        self._rest("route")

    def transforms(self) -> None:
        """Translate every transform; one of which nothing is left is reported."""
        written = 0
        filtered: list[str] = []
        for rule in list(self._rules("transform")):
            pattern, _ = table_pattern(self._ledger.text(f"{rule}.source-table"))
            if any(_may_overlap(pattern, earlier) for earlier in filtered):
                self._ledger.note(f"{rule}.source-table", _SEVERAL)
            if self._ledger.text(f"{rule}.filter"):
                filtered.append(pattern)
            if self._transform(rule, written):
                written += 1
        self._rest("transform")

    def _rules(self, section: str) -> Iterator[str]:
        """Yield the rules of a section, as beginnings of their keys."""
        yield from dict.fromkeys(
            found[0] for key in self._ledger.open if (found := re.match(rf"{section}\.\d+", key)) is not None
        )

    def _rest(self, section: str) -> None:
        for key in self._ledger.keys(section):
            self._ledger.report(key, "is no key of a rule")

    # ── routes ────────────────────

    def _route(self, rule: str, number: int) -> bool:
        ledger = self._ledger
        ledger.skip(f"{rule}.description")
        tables = self._pattern(f"{rule}.source-table")
        into = ledger.text(f"{rule}.sink-table").strip()
        symbol = ledger.text(f"{rule}.replace-symbol").strip()
        if symbol:
            into = re.sub(rf"{re.escape(symbol)}(?=(\w)?)", lambda found: "${table}" if found[1] else "$table", into)
        if "." not in into:
            ledger.note(f"{rule}.sink-table", f"{into} has no database: written as $database.{into}")
            into = f"$database.{into}"
            if ledger.out["sinks"][0]["type"] == "kafka":
                ledger.put("sinks.0.topic", "$table")
        parts = into.split(".")
        if len(parts) > _PARTS:
            into = ".".join(parts[-_PARTS:])
            ledger.note(f"{rule}.sink-table", f"a target has two parts: written as {into}")
        try:
            check_routes("", [RouteSettings(tables=tables, into=into)], ())
        except ConfigError as error:
            for name in ("source-table", "sink-table", "replace-symbol"):
                ledger.report_given(f"{rule}.{name}", f"the route is left out: {error}")
            return False
        ledger.translate(f"{rule}.source-table", f"sinks.0.routes.{number}.tables", tables)
        ledger.translate(f"{rule}.sink-table", f"sinks.0.routes.{number}.into", into)
        ledger.close(f"{rule}.replace-symbol", f"sinks.0.routes.{number}.into")
        return True

    def _pattern(self, key: str) -> str:
        found, notes = table_pattern(self._ledger.text(key))
        for note in notes:
            self._ledger.note(key, note)
        return found

    # ── transforms ────────────────────

    def _transform(self, rule: str, number: int) -> bool:
        ledger = self._ledger
        ledger.skip(f"{rule}.description")
        tables, ours = self._pattern(f"{rule}.source-table"), f"sinks.0.transforms.{number}"
        deleted = self._soft_delete(rule)
        select, computed = self._select(f"{rule}.projection")
        where = self._where(f"{rule}.filter", computed)
        extra = self._table_settings(rule, ours)
        if deleted is not None and self._has("soft_delete"):
            extra[f"{ours}.soft_delete"] = (f"{rule}.converter-after-transform", deleted)
        if not select and where is None and not extra and self._hides_others(rule):
            select = ["*"]
        if not select and where is None and not extra:
            for name in ("source-table", "projection"):
                ledger.report_given(f"{rule}.{name}", "the transform is left out: it changes nothing here")
            return False
        ledger.translate(f"{rule}.source-table", f"{ours}.tables", tables)
        if select:
            ledger.translate(f"{rule}.projection", f"{ours}.select", select)
        ledger.close(f"{rule}.projection", f"{ours}.select")
        if where is not None:
            ledger.translate(f"{rule}.filter", f"{ours}.where", where)
        for path, (key, value) in extra.items():
            ledger.translate(key, path, value)
        return True

    def _hides_others(self, rule: str) -> bool:
        """Return whether a later rule may match the same tables: the earlier one counts, also if it changes nothing."""
        ours, _ = table_pattern(self._ledger.text(f"{rule}.source-table"))
        later = [other for other in self._rules("transform") if int(other.rpartition(".")[2]) > int(rule.rpartition(".")[2])]
        return any(_may_overlap(ours, table_pattern(self._ledger.text(f"{other}.source-table"))[0]) for other in later)

    def _select(self, key: str) -> tuple[list[str], dict[str, str]]:
        """Return the items of a projection that can be used, and the computed columns: a filter that names one means it."""
        found: list[str] = []
        computed: dict[str, str] = {}
        replaced: list[str] = []
        for item in split_items(self._ledger.text(key)):
            inner, alias = alias_of(item)
            result = translated(inner, self._own, self._models, is_value=True)
            for note in result.notes:
                self._ledger.note(key, f"{item}: {note}")
            if alias is not None and inner.lower() != alias.lower():
                computed[alias.lower()] = "" if result.missing else result.text
            if result.missing:
                self._ledger.note(key, f"{item}: {_LEFT_OUT}: {'; '.join(result.missing)}")
                continue
            alias = alias or (inner if is_metadata(inner) else None)
            found.append(result.text if alias is None else f"{result.text} AS {alias}")
            if alias is not None and alias.lower() in names_in(inner):
                replaced.append(alias)
        if replaced and "*" in found:  # in Flink CDC a computed column takes the rule of one of its name
            found[found.index("*")] = f"* EXCEPT ({', '.join(replaced)})"
        return ([] if found == ["*"] else found), computed

    def _where(self, key: str, computed: Mapping[str, str]) -> str | None:
        text = self._ledger.text(key)
        if not text:
            return None
        result = translated(text, self._own, self._models, computed=computed)
        for note in result.notes:
            self._ledger.note(key, note)
        left_out = [f"{name} is left out of the projection" for name in sorted(names_in(text)) if computed.get(name) == ""]
        if result.missing or left_out:
            self._ledger.report(key, f"no row is left out: {'; '.join([*result.missing, *left_out])}")
            return None
        return result.text

    def _soft_delete(self, rule: str) -> str | None:
        """Return the column that marks deleted rows; None where they are deleted."""
        ledger, key = self._ledger, f"{rule}.converter-after-transform"
        if key not in ledger.open:
            return None
        if ledger.text(key).upper() != "SOFT_DELETE":
            ledger.report(key, "is no converter of Flink CDC: SOFT_DELETE is")
            return None
        aliases = {(alias or inner).lower() for inner, alias in map(alias_of, split_items(ledger.text(f"{rule}.projection")))}
        column = "is_deleted" if "deleted" in aliases else "deleted"
        if self._has("soft_delete"):
            ledger.note(key, _MARKED.format(column))
            return column
        ledger.report(key, "rows are deleted here, not marked: a changelog has an event of its own for that")
        return None

    def _table_settings(self, rule: str, ours: str) -> dict[str, tuple[str, object]]:
        """Return the settings of the target's table by their paths, with the keys they are of; report those that are not known."""
        ledger = self._ledger
        found: dict[str, tuple[str, object]] = {}
        for name, path in (("primary-keys", "key"), ("partition-keys", "partition_by")):
            key = f"{rule}.{name}"
            if key in ledger.open and (path == "key" or self._has(path)):
                found[f"{ours}.{path}"] = (key, [one.strip() for one in ledger.text(key).split(",") if one.strip()])
                if not self._has(path):
                    ledger.note(key, _KEY_OF_TOPIC)
            elif key in ledger.open:
                ledger.report(key, _NOT_DIVIDED)
        key = f"{rule}.table-options"
        delimiter = ledger.text(f"{rule}.table-options.delimiter") or ","
        if key in ledger.open and self._has("options"):
            pairs = [_OPTION.split(one.strip(), 1) for one in ledger.text(key).split(delimiter) if "=" in one]
            found[f"{ours}.options"] = (key, {pair[0]: pair[1] for pair in pairs})
            ledger.note(key, "options of another sink: keep those that are properties of the target's table here")
            ledger.close(f"{rule}.table-options.delimiter", f"{ours}.options")
        elif key in ledger.open:
            ledger.report(key, "a topic has no such options")
            ledger.skip(f"{rule}.table-options.delimiter")
        return found

    def _has(self, name: str) -> bool:
        """Return whether a transform has a setting, and the sink takes it: those of tables are none of a changelog."""
        return has_setting(TransformSettings, name) and self._ledger.out["sinks"][0].get("mode") != "changelog"


def _may_overlap(first: str, second: str) -> bool:
    """Return whether two patterns may match one table; False only if one is a plain name that the other does not match."""
    for pattern, other in ((first, second), (second, first)):
        if _PLAIN.fullmatch(pattern):
            return re.fullmatch(other, pattern.replace("\\.", "."), re.IGNORECASE) is not None
    return True
