"""TLS contexts of connections to a server, from settings: whom saltgate trusts there, and what it shows."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.settings import ClientCertificate


def client_context(ca: Path | None, certificate: ClientCertificate | None) -> ssl.SSLContext:
    """The context of connections to a server: the given authority alone, else the system's. Names are always
    checked. Raises OSError, such as ssl.SSLError, and ValueError where a file cannot be used.
    """
    context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        load_pair(context, str(certificate.certificate), certificate.key.value)
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: bytes) -> None:
    """Let the context show the certificate in that file, whose key is `key`. Raises as `client_context`."""
    with in_memory(key) as file:
        # Without a password OpenSSL would ask for an encrypted key's on the terminal.
        context.load_cert_chain(certificate, file, password="")


@contextmanager
def in_memory(pem: bytes) -> Iterator[str]:
    """OpenSSL takes a key by file name only: an anonymous file in memory keeps it off the disk."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
