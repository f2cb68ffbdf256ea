"""A certificate authority of a test: what servers and clients show each other."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR = datetime.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Identity:
    """Files in PEM: a certificate, its key in PKCS#8, and both in one file, as Kafka takes them."""

    cert: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates; `ca` is the file with its own."""

    def __init__(self, folder: Path, name: str = "tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = rsa.generate_private_key(65537, 2048)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
        certificate = self._sign(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def identity(self, name: str, *, hosts: tuple[str, ...] = (), password: str | None = None) -> Identity:
        """A certificate for those hosts (names and addresses); its key is encrypted where there is a password."""
        key = rsa.generate_private_key(65537, 2048)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        extensions: list[x509.ExtensionType] = [
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        ]
        if hosts:
            extensions.append(x509.SubjectAlternativeName([_general_name(host) for host in hosts]))
        certificate = self._sign(subject, key.public_key(), *extensions)
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        files = Identity(*(self._folder / f"{name}.{kind}.pem" for kind in ("cert", "key", "both")))
        for file, content in ((files.cert, pem), (files.key, secret), (files.both, secret + pem)):
            file.write_bytes(content)
        return files

    def _sign(
        self, subject: x509.Name, key: rsa.RSAPublicKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _YEAR)
            .not_valid_after(now + _YEAR)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
