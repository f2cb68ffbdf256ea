"""How clients of Kafka prove who they are and whom they trust: one set of settings, in librdkafka's words.

What enters: `KafkaSettings`. What leaves: options of librdkafka, passwords read from their files at that moment. The
merge job turns them into Java's words (`spark_jobs/kafka/security.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.secrets import secret_of

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings


def client_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return what every client is given besides the brokers: encryption, credentials, then `kafka.options`, which win.

    Raises `SecretError` for a file that cannot be read.
    """
    options: dict[str, str | None] = {}
    if kafka.security_protocol != "PLAINTEXT":
        options["security.protocol"] = kafka.security_protocol
    tls, sasl = kafka.tls, kafka.sasl
    if kafka.security_protocol.endswith("SSL"):
        options["ssl.ca.location"] = tls.ca
        options["ssl.certificate.location"] = tls.cert
        options["ssl.key.location"] = tls.key
        options["ssl.key.password"] = secret_of(tls.key_password, tls.key_password_file, "kafka.tls.key_password_file")
        if not tls.verify_hostname:
            options["ssl.endpoint.identification.algorithm"] = "none"
    if kafka.security_protocol.startswith("SASL"):
        options["sasl.mechanism"] = sasl.mechanism
        options["sasl.username"] = sasl.username
        options["sasl.password"] = secret_of(sasl.password, sasl.password_file, "kafka.sasl.password_file")
    return {name: value for name, value in options.items() if value} | dict(kafka.options)
