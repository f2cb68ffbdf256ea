"""A broker with an authorizer: who comes by SASL_PLAINTEXT may do what ACLs allow, who comes by PLAINTEXT may do everything."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from devservers import Kafka, start_kafka
from tests.support.cpu_time import shared_start
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
        return close_with_session(start_kafka(folder, secure=("SASL_PLAINTEXT",), properties=properties))


def section(user: str, password: str = "") -> dict[str, Any]:
    """Settings of a client with this name."""
    sasl = {"mechanism": "PLAIN", "username": user, "password": password or USERS[user]}
    servers = guarded_kafka().listener("SASL_PLAINTEXT")
    return {"bootstrap_servers": servers, "security_protocol": "SASL_PLAINTEXT", "sasl": sasl}
