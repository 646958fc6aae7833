"""TLS contexts from settings: what a listener shows, and whom a client connection trusts."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from config.secret import Secret
from config.settings import ClientCertificate, Tls


def listener_context(tls: Tls) -> ssl.SSLContext:
    """The context of a listener. Raises OSError or ssl.SSLError where certificate and key do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load(context, tls.certificate, tls.key)
    return context


def client_context(ca: Path | None, certificate: ClientCertificate | None) -> ssl.SSLContext:
    """The context of connections to a server: the given authority alone, else the system's. Names are always
    checked.
    """
    context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        _load(context, certificate.certificate, certificate.key)
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Secret) -> None:
    """OpenSSL takes a key by file name only: an anonymous file in memory keeps it off the disk."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, key.value)
        context.load_cert_chain(str(certificate), f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
