"""What kafka-configs.sh does with the arguments that `tidemark doctor` prints: the tests have no scripts of Kafka."""

from __future__ import annotations

import argparse

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)


def main() -> None:
    """Alter one setting of one topic."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--alter", action="store_true", required=True)
    parser.add_argument("--entity-type", choices=("topics",), required=True)
    parser.add_argument("--entity-name", required=True)
    parser.add_argument("--add-config", required=True)
    given = parser.parse_args()
    name, _, value = given.add_config.partition("=")
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, given.entity_name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": given.bootstrap_server})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


if __name__ == "__main__":
    main()
