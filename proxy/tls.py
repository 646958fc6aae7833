"""TLS of listeners, from settings: what they show; and whether all certificates of the configuration can be used."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from cryptography.x509 import load_pem_x509_certificates

from config.client_tls import client_context, in_memory, load_pair
from config.faults import Fault
from config.files import read_regular
from config.settings import Directory, Engine, Issuer, Settings, Tls

MAXIMUM_PEM_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Pair:
    """What a listener shows, and whose clients it knows, as PEM: read together, so that they belong together."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes | None = None


def read_pair(tls: Tls) -> Pair:
    """As the files are now. Raises OSError."""
    return Pair(
        certificate=read_regular(tls.certificate, maximum_bytes=MAXIMUM_PEM_BYTES),
        key=tls.key.value if tls.key.path is None else read_regular(tls.key.path, maximum_bytes=MAXIMUM_PEM_BYTES),
        authorities=None if tls.client_ca is None else read_regular(tls.client_ca, maximum_bytes=MAXIMUM_PEM_BYTES),
    )


def pair_context(pair: Pair) -> ssl.SSLContext:
    """The context of a listener. Raises OSError, such as ssl.SSLError, where certificate and key do not fit.

    With authorities a client may show a certificate: one of another authority ends the connection, none does not.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with in_memory(pair.certificate) as certificate:
        load_pair(context, certificate, pair.key)
    if pair.authorities is not None:
        with in_memory(pair.authorities) as authorities:
            context.load_verify_locations(cafile=authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def listener_context(tls: Tls) -> ssl.SSLContext:
    """The context of a listener, of the files as they are now. Raises as `read_pair` and `pair_context` do."""
    return pair_context(read_pair(tls))


def expiry(pair: Pair) -> float:
    """When the first of the pair's own chain is no longer valid, in Unix seconds. Raises ValueError."""
    chain = load_pem_x509_certificates(pair.certificate)
    return min(certificate.not_valid_after_utc.timestamp() for certificate in chain)


def faulty_certificates(settings: Settings) -> Iterator[Fault]:
    """What of the configured certificates, keys and authorities cannot be used, tried before anything is served."""
    made: dict[str, Callable[[], object]] = {}
    if settings.public.tls is not None:
        made["public.tls"] = partial(_try_to_show, replace(settings.public.tls, client_ca=None))
    made |= {key: partial(client_context, ca, None) for key, ca in _authorities(settings) if ca is not None}
    for key, place in _places(settings):
        if place.ca is not None:
            made[f"{key}.ca"] = partial(client_context, place.ca, None)
        if place.client_cert is not None:
            made[f"{key}.client_cert"] = partial(client_context, None, place.client_cert)
    if settings.telemetry.otlp_client_cert is not None:
        made["telemetry.otlp_client_cert"] = partial(client_context, None, settings.telemetry.otlp_client_cert)
    for key, make in made.items():
        try:
            make()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            yield Fault(key, f"{_words(error)}; write PEM files, certificate and key of one pair, the key unencrypted")


def _authorities(settings: Settings) -> Iterator[tuple[str, Path | None]]:
    """Those that stand alone, without a certificate of our own beside them."""
    yield "public.tls.client_ca", None if settings.public.tls is None else settings.public.tls.client_ca
    yield from (
        (f"engines.{number}.media_private_ca", one.media_private_ca) for number, one in enumerate(settings.engines)
    )
    yield "telemetry.otlp_ca", settings.telemetry.otlp_ca


def _places(settings: Settings) -> Iterator[tuple[str, Engine | Issuer | Directory]]:
    yield from ((f"engines.{number}", engine) for number, engine in enumerate(settings.engines))
    yield from ((f"issuers.{number}", issuer) for number, issuer in enumerate(settings.issuers))
    yield "directory", settings.directory


def _try_to_show(tls: Tls) -> None:
    """As a worker does. Raises OSError, and ValueError where only OpenSSL takes the certificate for one."""
    listener_context(tls)
    expiry(read_pair(tls))


def _words(error: OSError | ValueError) -> str:
    """OpenSSL's reason in words, without the place in its source."""
    reason = error.reason if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
    return (reason or "cannot be used").replace("_", " ").lower()
