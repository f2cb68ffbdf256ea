"""What kafka-acls.sh does with the arguments that `tidemark doctor` prints: the tests have no scripts of Kafka.

The address of its administrators is in the file of `--command-config`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional_id": ResourceType.TRANSACTIONAL_ID}
_WORDS = {"Read": AclOperation.READ, "Write": AclOperation.WRITE, "Create": AclOperation.CREATE, "Describe": AclOperation.DESCRIBE}
_WORDS |= {"DescribeConfigs": AclOperation.DESCRIBE_CONFIGS}


def main() -> None:
    """Add what is given."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--command-config", required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", choices=_WORDS, required=True)
    resources = parser.add_mutually_exclusive_group(required=True)
    for kind in _KINDS:
        resources.add_argument(f"--{kind.replace('_', '-')}")
    parser.add_argument("--resource-pattern-type", choices=("prefixed", "literal"), required=True)
    given = parser.parse_args()
    ((kind, name),) = ((kind, getattr(given, kind)) for kind in _KINDS if getattr(given, kind) is not None)
    pattern = ResourcePatternType.PREFIXED if given.resource_pattern_type == "prefixed" else ResourcePatternType.LITERAL
    allow = [
        AclBinding(_KINDS[kind], name, pattern, given.allow_principal, "*", _WORDS[word], AclPermissionType.ALLOW)
        for word in given.operation
    ]
    admin = AdminClient({"bootstrap.servers": Path(given.command_config).read_text("utf-8").partition("=")[2].strip()})
    for future in admin.create_acls(allow).values():
        future.result(60)


if __name__ == "__main__":
    main()
