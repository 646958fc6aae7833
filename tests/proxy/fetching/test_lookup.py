"""From a host to the addresses that may be connected to."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence

import pytest

from config.media_hosts import Reach
from proxy.engines.remote import Origin
from proxy.fetching.lookup import THREADS, AllowedResolver, NoAllowedAddressError, SystemLookup


class Answers:
    """A name server that says what the test wants: the answers in turn, the last one again and again."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int]] = []

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


def origin(reach: Reach = Reach.PUBLIC, host: str = "images.example.com", port: int = 443) -> Origin:
    return Origin(f"https://{host}", host, port, reach)


async def resolved(answer: Sequence[str], of: Origin) -> list[str]:
    return [found["host"] for found in await AllowedResolver(Answers(answer), {of}).resolve(of.host, of.port)]


async def test_what_is_connected_to_is_the_address_that_was_judged() -> None:
    place = origin()
    four, six = await AllowedResolver(Answers(["1.1.1.1", "2606:4700::1"]), {place}).resolve(place.host, 443)
    assert (four["host"], four["port"], four["family"]) == ("1.1.1.1", 443, socket.AF_INET)
    assert (six["host"], six["port"], six["family"]) == ("2606:4700::1", 443, socket.AF_INET6)
    assert four["flags"] & six["flags"] & socket.AI_NUMERICHOST


async def test_of_several_addresses_only_the_allowed_are_used() -> None:
    found = ["169.254.169.254", "1.1.1.1", "::ffff:10.0.0.1", "127.0.0.1", "fe80::1%eth0", "10.0.0.1"]
    assert await resolved(found, origin()) == ["1.1.1.1"]
    assert await resolved(found, origin(Reach.PRIVATE)) == ["1.1.1.1", "10.0.0.1"]
    assert await resolved(found, origin(Reach.LOOPBACK)) == ["127.0.0.1"]


@pytest.mark.parametrize(
    "answer",
    [(), ("127.0.0.1",), ("10.0.0.1",), ("169.254.169.254",), ("::ffff:169.254.169.254",), ("64:ff9b::a9fe:a9fe",)],
)
async def test_a_host_that_leads_inwards_has_no_address(answer: Sequence[str]) -> None:
    with pytest.raises(NoAllowedAddressError) as caught:
        await resolved(answer, origin())
    assert caught.value.found == answer
    assert "169" not in str(caught.value)


async def test_every_answer_is_judged_anew() -> None:
    place, answers = origin(), Answers(["1.1.1.1"], ["169.254.169.254"])
    resolver = AllowedResolver(answers, {place})
    assert [found["host"] for found in await resolver.resolve(place.host, 443)] == ["1.1.1.1"]
    with pytest.raises(NoAllowedAddressError):
        await resolver.resolve(place.host, 443)


async def test_hosts_and_ports_of_others_are_not_looked_up() -> None:
    answers = Answers(["1.1.1.1"])
    resolver = AllowedResolver(answers, {origin()})
    for host, port in (("evil.test", 443), ("images.example.com", 22), ("images.example.com.", 443)):
        with pytest.raises(NoAllowedAddressError):
            await resolver.resolve(host, port)
    assert answers.asked == []


async def test_the_system_is_asked_in_threads_of_its_own() -> None:
    lookup = SystemLookup()
    try:
        assert "127.0.0.1" in await lookup.addresses("localhost", 443)
        with pytest.raises(OSError):
            await lookup.addresses("no-such-host.invalid", 443)
    finally:
        lookup.close()
    with pytest.raises(RuntimeError):
        await lookup.addresses("localhost", 443)


async def test_a_host_whose_name_server_is_silent_leaves_threads_to_the_others() -> None:
    """Also when those who asked have given up long ago: their lookups still run."""
    may_end = threading.Event()

    def look_up(host: str, _port: int) -> Sequence[str]:
        if host == "silent.example.com":
            may_end.wait(30)
        return ["1.1.1.1"]

    lookup = SystemLookup(look_up)
    try:
        given_up = [asyncio.ensure_future(lookup.addresses("silent.example.com", 443)) for _ in range(2 * THREADS)]
        await asyncio.sleep(0.01)
        for one in given_up:
            one.cancel()
        again = [asyncio.ensure_future(lookup.addresses("silent.example.com", 443)) for _ in range(2 * THREADS)]
        async with asyncio.timeout(10):
            assert await lookup.addresses("images.example.com", 443) == ["1.1.1.1"]
        may_end.set()
        async with asyncio.timeout(10):
            assert await asyncio.gather(*again) == [["1.1.1.1"]] * len(again)
    finally:
        may_end.set()
        lookup.close()
