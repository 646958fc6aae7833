"""What is handed from step to step gets into the messages of others: it shows neither a salt, nor a text, nor a person.

A `Struct` and a `NamedTuple` show each of their fields, unless they have a word of their own.
"""

from __future__ import annotations

import mmap
from functools import partial
from typing import cast

import pytest

from observability.open_requests import AREA_BYTES, OpenRequests, take_left_open
from proxy.accounting import Accounted
from proxy.admission import Admission
from proxy.capacity.places import Place, Places
from proxy.engines.body import read_body
from proxy.engines.profile import Operation
from proxy.engines.usage import SeenAnswer, Usage
from proxy.entry import Asked, Entry
from proxy.gateway import Ready, Unfetched
from proxy.relay.destination import Destination
from proxy.relay.exchange import WholeAnswer
from proxy.relay.outliers import Outliers
from proxy.relay.patience import Patience
from tests.observability.telling import SUBJECT, goes_up, recorder
from tests.proxy.engines.asking import ENDPOINT, SALT, body_of, stamped
from tests.proxy.engines.test_remote import remote, unfetched

TEXT = "my secret"
CHAT = body_of(Operation.CHAT, messages=[{"role": "user", "content": TEXT}])
ASKED = Asked(read_body(ENDPOINT[Operation.CHAT], CHAT), SALT.value)
PLACE = Place(cast("Places", None))
WHERE = Destination("main", "tiny", (), Patience(first_byte=1, idle=1), Outliers(), f"https://i {SUBJECT}")
SENDABLE = partial(lambda presented: None, SALT.value)
STEPS = (
    ASKED,
    Unfetched(unfetched(remote()), SALT.value),
    Entry(PLACE, WHERE, ASKED, None, cast("Admission", None)),
    Ready(PLACE, stamped(Operation.CHAT, CHAT), WHERE, SENDABLE, SENDABLE, Accounted()),
    WHERE,
    SeenAnswer(TEXT.encode(), Usage(1, None, 1)),
    WholeAnswer(200, b"application/json", TEXT.encode()),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_a_step_shows_what_it_is_and_no_secret(step: object) -> None:
    shown = repr(step)
    assert shown.startswith(type(step).__name__)
    for secret in (SALT.value, TEXT, SUBJECT):
        assert secret not in shown


def test_whoever_calls_shows_no_person() -> None:
    record = recorder().request(method="POST", route="/v1/x")
    record.identified("https://i", SUBJECT, "chat-ui", "jwt")
    record.spoke_for("https://i", f"{SUBJECT}-actor")
    assert record.caller.subject == SUBJECT
    assert SUBJECT not in repr(record.caller) + repr(record)


def test_a_request_that_a_worker_left_open_shows_no_person() -> None:
    with mmap.mmap(-1, AREA_BYTES) as memory:
        goes_up(recorder(OpenRequests(memory)).request(method="POST", route="/v1/x"))
        (left,) = take_left_open(memory)
    assert SUBJECT in left.caller
    assert SUBJECT not in repr(left)
