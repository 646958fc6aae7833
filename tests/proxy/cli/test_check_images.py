"""What `saltgate check` says of the hosts that images are fetched from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from config.media_hosts import Reach, media_host, media_private_host
from config.settings import Engine
from proxy.cli.check_images import image_lines, origin_line
from proxy.cli.lines import Level
from proxy.engines.remote import Origin, elsewhere
from proxy.tls import listener_context
from tests.parts.image_origin import ImageOrigin
from tests.proxy.fetching.test_lookup import Answers
from tests.proxy.test_tls import Authority

pytestmark = pytest.mark.slow


def origins(host: str, ca: Path | None = None) -> list[Origin]:
    places = elsewhere([media_private_host(host)], private_ca=ca)
    assert places is not None
    return list(places.origins.values())


async def test_a_host_that_answers_is_fine_and_is_asked_for_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with ImageOrigin({}) as plain, ImageOrigin({}, tls=listener_context(authority.tls("127.0.0.1"))) as secure:
        _, http = origins(plain.authority)
        https, _ = origins(secure.authority, authority.file)
        for origin in (http, https):
            line = await origin_line("images", origin, Answers(["127.0.0.1"]))
            assert (line.level, line.about) == (Level.OK, origin.text)
            assert "127.0.0.1" in line.message
        assert plain.heads == secure.heads == []


async def test_an_authority_that_is_not_known_is_a_fault_with_the_remedy(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with ImageOrigin({}, tls=listener_context(authority.tls("127.0.0.1"))) as origin:
        line = await origin_line("images", origins(origin.authority)[0], Answers(["127.0.0.1"]))
        assert line.level is Level.FAULT
        assert "media_private_ca" in line.message


@pytest.mark.parametrize("found", [["10.0.0.1"], ["127.0.0.1", "169.254.169.254"], []])
async def test_a_public_name_that_leads_inwards_is_a_fault_that_names_the_other_list(found: Sequence[str]) -> None:
    places = elsewhere([media_host("images.example.com")], private_ca=None)
    assert places is not None
    (origin,) = places.origins.values()
    line = await origin_line("images", origin, Answers(found))
    assert line.level is Level.FAULT
    assert "media_private_hosts" in line.message
    assert all(address in line.message for address in found)
    private = replace(origin, reach=Reach.PRIVATE)
    line = await origin_line("images", private, Answers(["169.254.169.254"]))
    assert line.level is Level.FAULT
    assert "media_private_hosts" not in line.message


async def test_every_host_of_an_engine_has_its_line() -> None:
    async with ImageOrigin({}) as gone:
        authority = gone.authority
    engine = Engine(
        name="main",
        urls=("http://127.0.0.1:1",),
        media=True,
        media_hosts=("images.invalid",),
        media_private_hosts=(authority,),
    )
    lines = [line async for line in image_lines(engine)]
    assert [(line.level, line.about) for line in lines] == [
        (Level.FAULT, "https://images.invalid"),
        (Level.FAULT, f"https://{authority}"),
    ]
    async with ImageOrigin({}) as plain:
        here = replace(engine, media_hosts=None, media_private_hosts=(plain.authority,))
        assert [(line.level, line.about) async for line in image_lines(here)] == [
            (Level.OK, f"http://{plain.authority}")
        ]
    assert [line async for line in image_lines(replace(engine, media_hosts=None, media_private_hosts=None))] == []
