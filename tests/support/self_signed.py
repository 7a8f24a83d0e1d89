"""Certificates that no authority would issue: who trusts one trusts its one server."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID
from OpenSSL import SSL

from tests.support.authority import NAME

_DAY = datetime.timedelta(days=1)
_KEY = ec.generate_private_key(ec.SECP256R1())


def self_signed(
    folder: Path,
    *alternatives: x509.GeneralName,
    raw_names: bytes = b"",
    common_name: str = "unnamed",
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> str:
    """A PEM file with certificate and key; ``raw_names`` is a subjectAltName in DER."""
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder(name, name, _KEY.public_key(), x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    if raw_names:
        names = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, raw_names)
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(_KEY, hashes.SHA256())
    pem = folder / "self-signed.pem"
    pem.write_bytes(
        _KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return str(pem)


def server_of(pem: str) -> SSL.Context:
    """A server's context for such a file."""
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.use_certificate_chain_file(pem)
    context.use_privatekey_file(pem)
    return context


def _der(tag: int, *contents: bytes) -> bytes:
    """One value; all of these are short."""
    content = b"".join(contents)
    return bytes([tag, len(content)]) + content


def _names(odd: bytes) -> bytes:
    """A subjectAltName of NAME, 127.0.0.1 and an ``odd`` one."""
    return _der(0x30, _der(0x82, NAME.encode()), _der(0x87, bytes([127, 0, 0, 1])), odd)


UNDECODABLE = {
    "address-of-5-bytes": _names(_der(0x87, bytes([127, 0, 0, 1, 0]))),
    "mail-name-in-latin-1": _names(_der(0x81, "küche@dot.test".encode("latin-1"))),
}
"""subjectAltNames that OpenSSL takes no notice of and cryptography cannot decode."""
