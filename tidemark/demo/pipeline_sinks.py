"""The plan of the pipeline demo: which tables go where, as what, in each of its sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from schemas.identity import TableName

_ROUTES: Final = (
    {"tables": r"sales\.orders_\d+", "into": "ods.orders"},
    {"tables": r"sales\.returns", "into": "ods.returns"},
    {"tables": r"shop\.customers", "into": "crm.people"},
    {"tables": r"shop\.(.+)", "into": "ods.shop_$1"},
)
_ORDERS: Final = {
    "tables": r"sales\.orders_\d+",
    "select": ["* EXCEPT (note, email)", "amount * 100 AS cents", "upper(status) AS state", "masked(email) AS buyer"],
    "where": "status <> 'draft'",
}
_PEOPLE: Final = {"tables": r"shop\.customers", "into": r"crm\.people", "select": ["id", "masked(email) AS mail", "city"]}
_WITH_NUL: Final = ("c_char", "c_varchar", "c_tinytext", "c_text", "c_mediumtext", "c_longtext", "c_required_text")
_EVERYTHING: Final = {
    "tables": r"shop\.everything",
    "select": [f"* EXCEPT ({', '.join(_WITH_NUL)})", *(f"replace({name}, char(0), '') AS {name}" for name in _WITH_NUL)],
}
"""PostgreSQL has no text with the character NUL, and MySQL's columns do."""
UDFS: Final = ({"name": "masked", "function": "tidemark.demo.masking:masked", "returns": "string"},)
CAPTURED: Final = (r"shop\..*", r"sales\.orders_\d+")


def sinks(folder: Path, postgres: str, user: str, password_file: Path) -> list[dict[str, Any]]:
    """Return the sinks of the demo: the lake keeps customers that are deleted, the others do not."""

    def sink(name: str, kind: str, *transforms: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"name": name, "type": kind, "routes": list(_ROUTES), "transforms": [_ORDERS, *transforms], **more}

    return [
        sink("lake", "delta", {**_PEOPLE, "soft_delete": "gone"}, path=str(folder / "lake")),
        sink("ice", "iceberg", _PEOPLE, path=str(folder / "ice")),
        sink(
            "warehouse", "postgresql", _PEOPLE, _EVERYTHING, url=postgres, user=user, password_file=str(password_file),
            work=str(folder / "warehouse"),
        ),
        sink("stream", "kafka", _PEOPLE, mode="changelog", path=str(folder / "stream"), topic="ods.$database.$table"),
    ]  # fmt: skip


MIRROR: Final = "ice"
"""The mirror that the folded changelogs are compared with: their transforms are the same."""
STREAM: Final = "stream"
TOPICS: Final = {
    f"ods.{name.database}.{name.table}": name
    for name in (
        TableName("ods", "orders"), TableName("ods", "returns"), TableName("crm", "people"), TableName("ods", "shop_orders"),
        TableName("ods", "shop_order_lines"), TableName("ods", "shop_products"), TableName("ods", "shop_everything"),
        TableName("ods", "shop_customers"),
    )
}  # fmt: skip
