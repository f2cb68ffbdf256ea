"""The settings of TLS and SASL, which speak librdkafka, in the words of Java's Kafka client.

Certificates and keys are handed over as text: executors on other machines need no files. Kafka's client masks passwords,
keys and `sasl.jaas.config` where it logs its options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from schemas.errors import ConfigError
from schemas.kafka_security import client_options
from schemas.secrets import pem_of

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

_SAME: Final = {  # librdkafka's name → Java's, where the value is the same
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.key.password": "ssl.key.password",
    "client.id": "client.id",
    "client.rack": "client.rack",
}
_FILES: Final = {  # files, whose text Java takes
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
_STORES: Final = {"ssl.truststore.certificates": "ssl.truststore.type", "ssl.keystore.key": "ssl.keystore.type"}
_HOST_NAMES: Final = "ssl.endpoint.identification.algorithm"
_CREDENTIALS: Final = ("sasl.username", "sasl.password")
_REFUSED: Final = ("ssl.", "sasl.", "enable.ssl")


def security_options(settings: KafkaSettings) -> dict[str, str]:
    """Return the options of Spark's Kafka source, passwords read from their files at this moment.

    Raises `ConfigError` for an option that has no translation, a key that Java cannot read, a file that cannot be read.
    """
    given = client_options(settings)
    options: dict[str, str] = {}
    for name, value in given.items():
        if name in _SAME:
            options[_SAME[name]] = value
        elif name in _FILES:
            options[_FILES[name]] = pem_of(value, f"kafka.options.{name}" if name in settings.options else "kafka.tls")
        elif name == _HOST_NAMES:
            options[name] = "" if value == "none" else value
        elif name not in _CREDENTIALS and name.startswith(_REFUSED):
            message = f"kafka.options.{name}: the merge job cannot pass this option to Spark's Kafka client"
            raise ConfigError(message)
    options |= {kind: "PEM" for store, kind in _STORES.items() if store in options}
    if "ssl.keystore.key" in options:
        options["ssl.keystore.key"] = _plain_key(options["ssl.keystore.key"], options.pop("ssl.key.password", ""))
    if all(name in given for name in _CREDENTIALS):
        options["sasl.jaas.config"] = _jaas(given, options.get("sasl.mechanism", "PLAIN"))
    return {f"kafka.{name}": value for name, value in options.items()}


def _plain_key(text: str, password: str) -> str:
    """Return the key in PKCS#8 and not encrypted: Java reads no PKCS#1, and Java 17 not what OpenSSL encrypts keys with today."""
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(text.encode(), password.encode() or None)
    except (ValueError, TypeError) as error:
        message = f"kafka.tls.key: cannot be read: {error}; is kafka.tls.key_password_file right?"
        raise ConfigError(message) from None
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain).decode()


def _jaas(given: Mapping[str, str], mechanism: str) -> str:
    module = "scram.ScramLoginModule" if mechanism.upper().startswith("SCRAM") else "plain.PlainLoginModule"
    user, password = (given[name].replace("\\", "\\\\").replace('"', '\\"') for name in _CREDENTIALS)
    return f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
