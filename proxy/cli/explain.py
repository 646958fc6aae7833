"""`saltgate explain`: what becomes of a request with the token on standard input, and which border it would have."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from typing import BinaryIO, Final

from config.settings import Logs as LogSettings
from config.settings import Settings
from observability.logs import configure_logs
from proxy.admission import Identities
from proxy.assurance.engines import Engines
from proxy.assurance.replica import Replica
from proxy.assurance.verdict import Verdict
from proxy.cli.configuration import add_configuration, configured, tell_faults
from proxy.cli.engine_models import ask_models
from proxy.cli.explanation import Explanation, explain, outcome
from proxy.cli.explanation_shown import as_json, as_text
from proxy.configured import configured_engine, isolation_rules, key_ring, policy
from proxy.directory.connect import open_store, open_tokens
from proxy.directory.model import Fault
from proxy.directory.store import StoreUnavailable
from proxy.directory.view import DirectoryView
from proxy.identity import Identity
from proxy.identity.callers import Callers
from proxy.identity.client_authentication import faulty_client_keys
from proxy.identity.confirmation import Bound, Confirmation
from proxy.identity.credential import Form, credential
from proxy.identity.fronts import Fronts
from proxy.identity.issuers import TrustedIssuers, open_issuers
from proxy.identity.opaque import open_introspection
from proxy.identity.shown import Shown
from proxy.identity.token import MAXIMUM_TOKEN_BYTES
from proxy.reception import introspection_key, issuer_of_workspace, issuer_tls, personal_tokens, sign_in_url
from proxy.refusals import Refusal
from proxy.relay.question import EngineUnreachable
from proxy.routes import COLLECTION, ORGANIZATION, PROJECT, UNIT, find_route, named_scope
from proxy.tls import faulty_certificates

# A token that is too long is told to be; nothing is read beyond what shows that it is.
READ_AT_MOST: Final = MAXIMUM_TOKEN_BYTES + 1024

# The request that is explained: what holds for its path holds for all that generate.
ASKED_PATH: Final = "/v1/chat/completions"

Headers = Sequence[tuple[str, str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configuration(parser)
    parser.add_argument("--workspace", help="what the request names as workspace")
    parser.add_argument("--project", help="what it names as project")
    parser.add_argument("--collection", help=f"what it sends as {COLLECTION}")
    parser.add_argument("--unit", help=f"what it sends as {UNIT}")
    parser.add_argument("--model", help="the model that it asks; without one, what holds for any without an exception")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    settings = configured(arguments)
    if settings is None:
        return 2
    faults = [*faulty_certificates(settings), *faulty_client_keys(settings)]
    tell_faults(arguments.configuration, faults)
    if faults:
        return 2
    if sys.stdin.isatty():
        _tell("paste the token, then press Enter and Ctrl-D")
    shown = authorization(sys.stdin.buffer)
    if shown is None:
        _tell("there is no token on standard input; send one, for example: saltgate explain -c FILE < token")
        return 2
    # What the parts log (an issuer that is away, say) is for the operator and must not be among the answer.
    logs = LogSettings(format="human", level="warning")
    with closing(configure_logs(logs, sys.stderr.buffer, monotonic_ns=time.monotonic_ns)):
        return asyncio.run(_run(arguments, settings, shown))


def authorization(stream: BinaryIO) -> tuple[str, str] | None:
    """The header that shows the stream's token, whether or not it already says `Bearer`; None where there is none.

    It is the gate that judges what stands there.
    """
    text = stream.read(READ_AT_MOST).decode("utf-8", "surrogateescape").strip()
    if not text:
        return None
    return "Authorization", text if text[:7].lower() == "bearer " else f"Bearer {text}"


async def _run(arguments: argparse.Namespace, settings: Settings, shown: tuple[str, str]) -> int:
    try:
        store, tokens = open_store(settings.directory, removal=None), open_tokens(settings.directory)
    except ValueError as error:
        _tell(str(error))
        return 2
    view = DirectoryView(store, max_stale=settings.directory.max_stale)
    keys = key_ring(settings)
    engines = [configured_engine(engine, settings.timeouts) for engine in settings.engines]
    replicas = [replica for engine in engines for replica in engine.replicas]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        stack.push_async_callback(tokens.close)
        for replica in replicas:
            stack.callback(replica.pool.close)
        clock = time.time  # noqa: TID251 - the clock is handed out here
        issuers = await stack.enter_async_context(
            open_issuers(
                settings.issuers,
                clock=clock,
                tls=issuer_tls(settings.issuers),
                sign_in_url=sign_in_url(settings),
            )
        )
        opaque = await stack.enter_async_context(
            open_introspection(
                settings.issuers,
                issuer_of_workspace=issuer_of_workspace(view),
                key=introspection_key(settings),
                clock=clock,
                tls=issuer_tls(settings.issuers),
            )
        )
        known = Callers(issuers, opaque=opaque, personal=personal_tokens(settings, tokens))
        callers = Fronts(known, settings.fronts, clock=clock)
        away = await _confirmed(view)  # first: it says whom to ask about an opaque token
        async with asyncio.TaskGroup() as group:
            identity = group.create_task(_identity(callers, arguments, shown))
            bound = group.create_task(_bound(issuers, shown))
            asked = [group.create_task(_asked(replica)) for replica in replicas]
        holder = bound.result()
        explanation = explain(
            identity.result() if holder is None else holder.caller,
            outcome(lambda: named_scope(find_route("POST", ASKED_PATH), _headers(arguments))),
            outcome(view.current),
            Engines(engines, keys.keys[settings.isolation.keys[0].id], _Nobody()),
            model=arguments.model,
            policy=policy(settings),
            rules=isolation_rules(settings),
            keys=keys,
            now=clock(),
        )
    notes = [note for note in (away, *(task.result() for task in asked)) if note is not None]
    if holder is not None:
        notes.append(_what_is_shown(holder.confirmation))
    _say(arguments, explanation, notes, view.faults)
    return 1 if explanation.refusals else 0


async def _identity(
    identities: Identities, arguments: argparse.Namespace, credential: tuple[str, str]
) -> Identity | Refusal:
    shown = Shown(headers=(credential,), method="POST", path=ASKED_PATH, workspace=arguments.workspace)
    try:
        return await identities.identify(shown)
    except Refusal as refusal:
        return refusal


async def _bound(issuers: TrustedIssuers, shown: tuple[str, str]) -> Bound | None:
    """Whom the token names, where a request would also have to show what it is bound to; None for any other."""
    try:
        presented = credential([shown])
        found = await issuers.judged(presented.token) if presented.form is Form.SIGNED else None
    except Refusal:
        return None  # told as the identity's
    return found if isinstance(found, Bound) else None


def _what_is_shown(confirmation: Confirmation) -> str:
    """What this explanation takes for granted."""
    by_name = {"a DPoP proof": confirmation.key, "its client certificate": confirmation.certificate}
    shown = [name for name, thumbprint in by_name.items() if thumbprint is not None]
    return f"the token is bound: each request must also show {' and '.join(shown)}; this is explained as if it did"


async def _confirmed(view: DirectoryView) -> str | None:
    """Why the directory could not be read, if so: the view itself says it in the words for callers."""
    try:
        await view.confirm()
    except StoreUnavailable as error:
        return f"the directory: {error}"
    return None


async def _asked(replica: Replica) -> str | None:
    """Why the replica did not tell its models, if so."""
    try:
        await ask_models(replica)
    except EngineUnreachable as error:
        return str(error)
    replica.reachable = True
    return None


def _headers(arguments: argparse.Namespace) -> Headers:
    """The headers with which a client names what the options say."""
    named = {
        ORGANIZATION: arguments.workspace,
        PROJECT: arguments.project,
        COLLECTION: arguments.collection,
        UNIT: arguments.unit,
    }
    return [(name, value) for name, value in named.items() if value is not None]


class _Nobody:
    """There are no metrics in a command."""

    def verdict(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None: ...

    def version(self, engine: str, replica: str, version: str) -> None: ...

    def probed(self, engine: str, replica: str, prompt_tokens: int) -> None: ...


def _say(
    arguments: argparse.Namespace, explanation: Explanation, notes: Sequence[str], faults: Sequence[Fault]
) -> None:
    told = as_json if arguments.json else as_text
    sys.stdout.write(told(explanation, model=arguments.model, notes=notes, faults=faults))


def _tell(message: str) -> None:
    sys.stderr.write(f"saltgate: {message}\n")
