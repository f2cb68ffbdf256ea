"""The ledger of a connector's properties: Debezium's rules for the values of a property."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.errors import ConfigError
from schemas.settings import bounds_of
from tidemark.importers.key_ledger import Ledger

_PROVIDED: Final = re.compile(r"\$\{[^}]*:[^}]*\}")
_HIDING: Final = re.compile(r"(database|table|column)\.((in|ex)clude\.list|(white|black)list)|column\.(mask|truncate)\..*")
_FROM_CONNECT: Final = "is filled in by Kafka Connect from a config provider: put its value there and import again, or set it here"
_RENAMED: Final[Mapping[str, str]] = {
    "database.server.name": "topic.prefix",
    **{
        f"{kind}.{old}": f"{kind}.{new}.list"
        for kind in ("database", "table", "column")
        for old, new in (("whitelist", "include"), ("blacklist", "exclude"))
    },
    "heartbeat.topics.prefix": "topic.heartbeat.prefix",
    "transaction.topic": "topic.transaction",
    "internal.legacy.snapshot.max.threads": "legacy.snapshot.max.threads",
}


@dataclass(slots=True)
class ConnectorLedger(Ledger):
    """The properties that are open, all as text, and what became of the others."""

    open: dict[str, Any] = field(default_factory=dict)
    old_names: dict[str, str] = field(default_factory=dict)

    def rename_old(self) -> None:
        """Give properties their names of today; one that is given under both names counts as of today."""
        for name in list(self.open):
            new = _RENAMED.get(name, re.sub(r"^database\.history\b", "schema.history.internal", name))
            if new == name:
                continue
            if new in self.open:
                self.report(name, f"is the old name of {new}, which is given too and counts")
            else:
                self.open[new] = self.open.pop(name)
                self.old_names[new] = name
                self.note(name, f"is called {new} since Debezium 2", "" if new.startswith("schema.history") else self.text(new))

    def given_name(self, name: str) -> str:
        """Return the name under which a property is given."""
        return self.old_names.get(name, name)

    def report_provided(self) -> None:
        """Report properties whose values Kafka Connect fills in. `ConfigError` for a list: what it hides would be published."""
        for name in list(self.open):
            if not _PROVIDED.search(self.text(name)) or name == "database.password":
                continue
            if _HIDING.fullmatch(name):
                message = f"{name} = {self.text(name)} {_FROM_CONNECT}; without it, more is published than by the connector"
                raise ConfigError(message)
            self.report(name, _FROM_CONNECT)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false, as Kafka and Debezium read them: upper and lower case alike. Any other text is reported."""
        text = self.text(name).strip().lower()
        if text in ("", "true", "false"):
            return default if not text else text == "true"
        self.report(name, f"is neither true nor false: {str(default).lower()} is assumed")
        return default

    def word(self, name: str, default: str = "") -> str:
        """Return a value that is one of several words: upper and lower case are alike."""
        return self.text(name).strip().lower() or default

    def words(self, name: str) -> list[str]:
        """Return the words of a list with commas."""
        return [one for one in (part.strip() for part in self.text(name).split(",")) if one]

    def whole(self, name: str, path: str, scale: int = 1) -> None:
        """Translate a number, in units of `scale`; report any other text, and a number beyond the bounds of our setting."""
        text = self.text(name).strip()
        if not text:
            self.close(name, path)
        elif not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
            self.report(name, f"is no number: set {path}")
        else:
            value = -(-int(text) // scale)
            lowest, highest = bounds_of(path)
            if lowest <= value <= highest:
                self.translate(name, path, value)
            else:
                self.report(name, f"is not within {lowest} and {highest}: set {path}")

    def options(self, prefix: str) -> dict[str, str]:
        """Return the open properties below a prefix, by the rest of their names."""
        return {name.removeprefix(f"{prefix}."): self.text(name) for name in self.keys(prefix)}

    def close_all(self, names: Sequence[str], path: str) -> None:
        """Close properties that are parts of a setting."""
        for name in names:
            self.close(name, path)
