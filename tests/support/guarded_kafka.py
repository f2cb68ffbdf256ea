"""A broker with an authorizer: who comes by SASL_PLAINTEXT may do what ACLs allow, who comes by PLAINTEXT may do everything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from devservers import Kafka
from tests.support.cpu_time import shared_start
from tests.support.own_broker import own_kafka
from tests.support.servers import close_with_session, run_folder

USERS: Final = {"captain": "of the captain", "sailor": "of the sailor"}
_LISTENER: Final = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@cache
def guarded_kafka() -> Kafka:
    """The session's broker of this kind. Its administrator is who comes without a name."""
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        _LISTENER: f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
    }
    folder = run_folder() / "guarded"
    folder.mkdir(exist_ok=True)
    with shared_start():
        return close_with_session(own_kafka(folder, secure=("SASL_PLAINTEXT",), properties=properties))


def section(user: str, password: str = "") -> dict[str, Any]:
    """Settings of a client with this name."""
    sasl = {"mechanism": "PLAIN", "username": user, "password": password or USERS[user]}
    servers = guarded_kafka().listener("SASL_PLAINTEXT")
    return {"bootstrap_servers": servers, "security_protocol": "SASL_PLAINTEXT", "sasl": sasl}


@contextmanager
def asking_for_ids(user: str) -> Iterator[None]:
    """Let a user see, while entered, what `tidemark doctor` has to know before it asks for a transactional id.

    There is a topic of transactions from then on.
    """
    servers = {"bootstrap.servers": guarded_kafka().bootstrap_servers}
    Producer({**servers, "transactional.id": "of-an-administrator"}).init_transactions(60)
    admin = AdminClient(servers)
    rights = [(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS)]
    rights.append((ResourceType.TOPIC, "__transaction_state", AclOperation.DESCRIBE))
    named = [
        (kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in rights
    ]
    for future in admin.create_acls([AclBinding(*one) for one in named]).values():
        future.result(60)
    time.sleep(0.5)  # the broker follows its controller
    try:
        yield
    finally:
        for future in admin.delete_acls([AclBindingFilter(*one) for one in named]).values():
            future.result(60)
        time.sleep(0.5)
