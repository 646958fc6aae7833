"""`saltgate serve`: run the gate until it is told to stop."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from config.faults import Fault
from config.settings import Issuer, Settings
from proxy.cli.configuration import add_configuration, tell_faults
from proxy.cli.local_issuer import OWNER, local_folder, tell_new_owner
from proxy.reading import read_configuration
from proxy.server import serve
from proxy.supervisor.listener import CannotListen


class LocalIssuerFailed(Exception):  # noqa: N818 - what the operator reads
    """An issuer of kind "local" cannot run. The message has the remedy."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configuration(parser)
    parser.epilog = (
        "SIGTERM and SIGINT: no request is taken any more, open ones may finish within [drain] limit; a second one "
        "cuts them. SIGHUP: the configuration is read anew, without losing a connection; a faulty one changes nothing."
    )


def run(arguments: argparse.Namespace) -> int:
    configuration: Path = arguments.configuration
    reading, settings = read_configuration(configuration)
    for warning in reading.warnings:
        sys.stderr.write(f"saltgate: warning: {warning}\n")
    tell_faults(configuration, (Fault(key, message) for key, message in reading.faults))
    if reading.plan is None or settings is None:
        return 2
    try:
        serve(reading.plan, configuration, settings.logs, beside=_local_issuers(settings, configuration))
    except (CannotListen, LocalIssuerFailed) as error:
        sys.stderr.write(f"saltgate: {error}\n")
        return 2
    return 0


@asynccontextmanager
async def _local_issuers(settings: Settings, configuration: Path) -> AsyncIterator[None]:
    """The embedded issuers of the configuration, in this process, for as long as the gate runs."""
    async with AsyncExitStack() as stack:
        for number, issuer in enumerate(settings.issuers):
            if issuer.kind == "local":
                await _open_local_issuer(stack, f"issuers.{number}", issuer, settings, configuration)
        yield


async def _open_local_issuer(
    stack: AsyncExitStack, key: str, issuer: Issuer, settings: Settings, configuration: Path
) -> None:
    # Here, because a gate without a local issuer need not wait for an issuer's imports.
    from proxy.demo.provider import NotLoopback, UnsafeState, address_of_issuer, open_local_provider

    try:
        address = address_of_issuer(issuer.issuer)
    except NotLoopback as error:
        raise LocalIssuerFailed(f"{key}: {error}") from error
    folder = local_folder(settings, configuration, address.port)
    try:
        local = await stack.enter_async_context(
            open_local_provider(
                address,
                folder,
                audience=issuer.audiences[0],
                username=OWNER,
                clock=time.time,  # noqa: TID251 - the clock is handed out here
            )
        )
    except UnsafeState as error:
        raise LocalIssuerFailed(f"{key}: {error}") from error
    except OSError as error:
        raise LocalIssuerFailed(
            f"{key}: cannot run the local issuer {issuer.issuer} with its state in {folder}: "
            f"{error.strerror or error}. Free the port, and make the folder writable or set directory.state"
        ) from error
    if local.new_password is not None:
        tell_new_owner(issuer.issuer, local.owner.subject, local.new_password)
