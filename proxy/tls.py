"""TLS contexts from settings: what a listener shows, and whom a client connection trusts."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from config.faults import Fault
from config.secret import Secret
from config.settings import ClientCertificate, Directory, Engine, Issuer, Settings, Tls


def listener_context(tls: Tls) -> ssl.SSLContext:
    """The context of a listener. Raises OSError or ssl.SSLError where certificate and key do not fit.

    With `client_ca` a client may show a certificate: one of another authority ends the connection, none does not.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load(context, tls.certificate, tls.key)
    if tls.client_ca is not None:
        context.load_verify_locations(cafile=str(tls.client_ca))
        context.verify_mode = ssl.CERT_OPTIONAL
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


def faulty_certificates(settings: Settings) -> Iterator[Fault]:
    """What of the configured certificates, keys and authorities cannot be used, tried before anything is served."""
    made: dict[str, Callable[[], ssl.SSLContext]] = {}
    if settings.public.tls is not None:
        made["public.tls"] = partial(listener_context, replace(settings.public.tls, client_ca=None))
        if settings.public.tls.client_ca is not None:
            made["public.tls.client_ca"] = partial(client_context, settings.public.tls.client_ca, None)
    for number, engine in enumerate(settings.engines):
        if engine.media_private_ca is not None:
            made[f"engines.{number}.media_private_ca"] = partial(client_context, engine.media_private_ca, None)
    for key, place in _places(settings):
        if place.ca is not None:
            made[f"{key}.ca"] = partial(client_context, place.ca, None)
        if place.client_cert is not None:
            made[f"{key}.client_cert"] = partial(client_context, None, place.client_cert)
    for key, make in made.items():
        try:
            make()
        except OSError as error:  # ssl.SSLError is one
            yield Fault(key, f"{_words(error)}; write PEM files, certificate and key of one pair, the key unencrypted")


def _places(settings: Settings) -> Iterator[tuple[str, Engine | Issuer | Directory]]:
    yield from ((f"engines.{number}", engine) for number, engine in enumerate(settings.engines))
    yield from ((f"issuers.{number}", issuer) for number, issuer in enumerate(settings.issuers))
    yield "directory", settings.directory


def _words(error: OSError) -> str:
    """OpenSSL's reason in words, without the place in its source."""
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return (reason or "cannot be used").replace("_", " ").lower()


def _load(context: ssl.SSLContext, certificate: Path, key: Secret) -> None:
    """OpenSSL takes a key by file name only: an anonymous file in memory keeps it off the disk."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, key.value)
        # Without a password OpenSSL would ask for an encrypted key's on the terminal.
        context.load_cert_chain(str(certificate), f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)
