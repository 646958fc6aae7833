"""The certificate that a client holds, if somebody says so whom we believe: our own listener, or a trusted front."""

from __future__ import annotations

import binascii
import re
import ssl
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Final

from config.settings import Proxies, Tls
from proxy.peers import Trusted, trusted_proxies
from proxy.refusals import InvalidRequest
from proxy.relay.request import Request

MAXIMUM_CERTIFICATE_CHARACTERS: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificates:
    """`listener` is whether our own listener asks for one. `header` is the one in which trusted fronts pass a
    certificate; None: none of them does.
    """

    listener: bool = False
    header: str | None = None
    trusted: Trusted = field(default_factory=Trusted)

    @property
    def possible(self) -> bool:
        """Whether any client can show a certificate to us."""
        return self.listener or self.header is not None

    def of(self, request: Request) -> bytes | None:
        """The certificate in DER that the client has shown and proven to hold.

        For a trusted front it is what its header says and nothing else: the certificate of the connection is the
        front's own. Of everybody else the header is ignored. Raises `InvalidRequest` for a front's header that is not
        exactly one certificate: perhaps it also passes on what a client wrote there.
        """
        if self.header is not None and self.trusted.holds(request.connection.peer):
            return _forwarded(request.headers.getall(self.header, ()))
        if not self.listener:
            return None
        tls = None if request.transport is None else request.transport.get_extra_info("ssl_object")
        return tls.getpeercert(binary_form=True) if isinstance(tls, ssl.SSLObject) else None


def client_certificates(tls: Tls | None, proxies: Proxies) -> ClientCertificates:
    """What the settings say of it."""
    return ClientCertificates(
        listener=tls is not None and tls.client_ca is not None,
        header=proxies.client_certificate_header,
        trusted=trusted_proxies(proxies),
    )


_BYTE_SEQUENCE: Final = re.compile(r":([A-Za-z0-9+/]+={0,2}):")  # RFC 9651 section 3.3.5


def _forwarded(lines: list[str] | tuple[()]) -> bytes | None:
    """The certificate of a `Client-Cert` header (RFC 9440 section 2.2); None where the client showed none: then there
    is no header, or an empty one of a front whose template always writes one.
    """
    if not lines or (len(lines) == 1 and lines[0] in {"", "::"}):
        return None
    match = _BYTE_SEQUENCE.fullmatch(lines[0]) if len(lines) == 1 else None
    if match is None or len(match[1]) > MAXIMUM_CERTIFICATE_CHARACTERS:
        raise _doubtful()
    try:
        certificate = b64decode(match[1], validate=True)
    except binascii.Error as error:
        raise _doubtful() from error
    if b64encode(certificate).decode("ascii") != match[1]:
        raise _doubtful()
    return certificate


def _doubtful() -> InvalidRequest:
    return InvalidRequest(
        "The front of this gateway passed a client certificate that is not one as RFC 9440 has it. "
        "Tell your administrator.",
        reason="forwarded_certificate",
    )
