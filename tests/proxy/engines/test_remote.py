"""Images that are elsewhere: which addresses a request may name, and that none of them can go up to an engine."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from yarl import URL

from config.media_hosts import Reach, media_host, media_private_host
from config.settings import Engine, EngineLimits
from proxy.engines.body import ClientRequest, UnfetchedRequest, open_body, read_body, read_request, with_images
from proxy.engines.kinds import profile_of
from proxy.engines.kinds.vllm import vllm_with_images
from proxy.engines.media import identity
from proxy.engines.profile import Operation
from proxy.engines.remote import MAX_ADDRESS_CHARACTERS, Address, Elsewhere, elsewhere
from proxy.engines.stamp import stamp
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import SALT, body_of
from tests.proxy.engines.test_media import GIF, JPEG, PNG, WEBP, chat, data_url, image, raw_part

HOSTS = (media_host("images.example.com"), media_host("cdn.example.com:8443"), media_private_host("localhost:9000"))
found = elsewhere(HOSTS, private_ca=None)
assert found is not None
PLACES: Elsewhere = found
LIMITS = EngineLimits(media_parts=3, media_bytes=128)
endpoint = vllm_with_images(LIMITS, PLACES).endpoint(Operation.CHAT)
assert endpoint is not None
CHAT = endpoint
HERE = "https://images.example.com"
CAT = f"{HERE}/cat.png?size=2"


def remote(url: str = CAT, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}} | more


def unfetched(*parts: Any) -> UnfetchedRequest:
    request = read_request(CHAT, open_body(body_of(Operation.CHAT, **chat(*parts))))
    assert isinstance(request, UnfetchedRequest)
    return request


def refused_raw(part: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_request(CHAT, open_body(raw_part(part)))
    return caught.value


def refused(*parts: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_request(CHAT, open_body(body_of(Operation.CHAT, **chat(*parts))))
    return caught.value


def at(url: str) -> Address:
    address = PLACES.address(url)
    assert address is not None
    return address


def sent(request: ClientRequest) -> list[Any]:
    body = stamp(request, SALT, request_id="r", show_reuse=True).body
    parts: list[Any] = json.loads(body)["messages"][0]["content"]
    return parts


# Which addresses are ones.


@pytest.mark.parametrize(
    ("url", "origin", "port", "reach"),
    [
        (f"{HERE}/a.png", HERE, 443, Reach.PUBLIC),
        ("https://cdn.example.com:8443/", "https://cdn.example.com:8443", 8443, Reach.PUBLIC),
        ("https://localhost:9000/a", "https://localhost:9000", 9000, Reach.LOOPBACK),
        ("http://localhost:9000/a", "http://localhost:9000", 9000, Reach.LOOPBACK),
    ],
)
def test_an_address_is_one_of_the_origins_and_a_target(url: str, origin: str, port: int, reach: Reach) -> None:
    address = at(url)
    assert (address.origin.text, address.origin.port, address.origin.reach) == (origin, port, reach)
    assert address.url == url


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/a/b.png",
        "/a?X-Amz-Signature=0f&X-Amz-Date=1",
        "/%7Ea%2Fb",
        "//a",
        "/../a",
        "/a;b=1,2@3:4",
        "/a??b",
        "/a?/../",
    ],
)
def test_the_target_goes_out_as_it_came(target: str) -> None:
    assert at(HERE + target).target == target
    assert URL(HERE + target, encoded=True).raw_path_qs == target


HOSTILE = [
    # another host by another spelling
    "https://IMAGES.example.com/a",
    "https://images.example.com./a",
    "https://images.example.com:443/a",
    "https://images.example.com:0443/a",
    "https://images.example.com:/a",
    "https://images.example.com:80/a",
    "https://images%2eexample.com/a",
    "https://images\u3002example.com/a",
    "https://\uff49mages.example.com/a",
    "https://images.example.com\u200b/a",
    "https://evil.images.example.com/a",
    "https://images.example.com.evil.test/a",
    "https://evil-images.example.com/a",
    "https://example.com/a",
    # who is the user, who the host?
    "https://images.example.com@evil.test/a",
    "https://evil.test@images.example.com/a",
    "https://@images.example.com/a",
    "https://:@images.example.com/a",
    "https://images.example.com:80@evil.test/a",
    "https://images.example.com:443:80/a",
    "https://evil.test#@images.example.com/a",
    "https://evil.test?@images.example.com/a",
    "https://evil.test/@images.example.com/a",
    "https://evil.test\\@images.example.com/a",
    "https://images.example.com\\@evil.test/a",
    "https://images.example.com\\.evil.test/a",
    "https:\\\\images.example.com\\a",
    "https://images.example.com\\a",
    # what readers strip
    " https://images.example.com/a",
    "https://images.example.com/a ",
    "https://images.example.com/a\n",
    "ht\ntps://images.example.com/a",
    "https://images.exa\tmple.com/a",
    "https://images.example.com\t/a",
    "https://images.example.com\0.evil.test/a",
    "https://images.example.com/a\r\nHost: evil.test",
    "https://images.example.com/a b",
    "https://images.example.com/a\\b",
    "https://images.example.com/ä",
    "https://images.example.com/a\x7f",
    "https://images.example.com/%",
    "https://images.example.com/%0",
    "https://images.example.com/%zz",
    "https://images.example.com/[a]",
    'https://images.example.com/"a',
    "https://images.example.com/a|b",
    "https://images.example.com/{a}",
    # not the whole of it, or more
    "https://images.example.com",
    "https://images.example.com?a",
    "https://images.example.com/a?",
    "https://images.example.com/a#b",
    "https://images.example.com/a#",
    "https://images.example.com#/a",
    "//images.example.com/a",
    "/images.example.com/a",
    "https:/images.example.com/a",
    "https:images.example.com/a",
    "https:///images.example.com/a",
    "https:////images.example.com/a",
    "images.example.com/a",
    f"{HERE}/{'a' * MAX_ADDRESS_CHARACTERS}",
    # another scheme
    "http://images.example.com/a",
    "HTTPS://images.example.com/a",
    "ftp://images.example.com/a",
    "file://images.example.com/a",
    "file:///etc/passwd",
    "gopher://images.example.com/a",
    "url:https://images.example.com/a",
    "https+unix://images.example.com/a",
    # inside
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.169.254/",
    "https://2852039166/",
    "https://0xa9fea9fe/",
    "https://0251.0376.0251.0376/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[fe80::1%25eth0]/",
    "https://[::1]/",
    "https://[::1]:9000/a",
    "https://127.0.0.1:9000/a",
    "http://127.1:9000/a",
    "http://localhost/a",
    "http://localhost:9001/a",
    "http://localhost:09000/a",
    "http://LOCALHOST:9000/a",
    "http://localhost.:9000/a",
]


@pytest.mark.parametrize("url", HOSTILE)
def test_every_other_spelling_is_refused(url: str) -> None:
    refusal = refused({"type": "text", "text": "x"}, remote(url))
    assert (refusal.param, refusal.reason) == ("messages[0].content[1].image_url.url", "media_refused")
    assert "example.com" not in refusal.message


_HOSTISH = st.text("exampl.com/:@\\#?%[]0x1 \t\n\0\u3002", max_size=12)


@given(_HOSTISH, st.sampled_from([*(host.authority for host in HOSTS), ""]), _HOSTISH)
@example("", "images.example.com", "/a")
def test_whatever_is_written_only_the_listed_hosts_are_asked(before: str, host: str, after: str) -> None:
    for scheme in ("https://", "http://", "//", "https:"):
        written = f"{scheme}{before}{host}{after}"
        address = PLACES.address(written)
        if address is None:
            continue
        assert address.url == written
        # Another reader finds the same in it, and sends it so.
        read = URL(written, encoded=True)
        origin = address.origin
        assert (read.scheme, read.host, read.port) == (written.partition(":")[0], origin.host, origin.port)
        assert (read.user, read.password, read.raw_fragment) == (None, None, "")
        assert read.raw_path_qs == address.target


@given(st.text(max_size=40))
def test_a_target_of_any_text_is_refused_or_goes_out_in_one_line(text: str) -> None:
    address = PLACES.address(f"{HERE}/{text}")
    if address is not None:
        assert address.target == f"/{text}" == URL(address.url, encoded=True).raw_path_qs
        assert address.target.isascii()
        assert address.target.isprintable()
        assert " " not in address.target


# From the request to what may be stamped.


def test_a_request_that_names_an_image_is_no_client_request_until_it_is_fetched() -> None:
    request = unfetched(
        {"type": "text", "text": "x"},
        remote(),
        image(),
        remote(f"{HERE}/dog.gif"),
    )
    assert [one.where for one in request.remote] == [
        "messages[0].content[1].image_url.url",
        "messages[0].content[3].image_url.url",
    ]
    whole = with_images(request, {at(CAT): PNG, at(f"{HERE}/dog.gif"): GIF})
    assert whole.images == 3
    assert sent(whole) == [
        {"type": "text", "text": "x"},
        image(PNG, "png", uuid=identity(PNG, SALT)),
        image(uuid=identity(GIF, SALT)),
        image(uuid=identity(GIF, SALT)),
    ]


def test_what_is_fetched_is_as_if_the_client_had_sent_it() -> None:
    fetched = with_images(unfetched({"type": "text", "text": "x"}, remote(uuid="x")), {at(CAT): PNG})
    own = read_body(CHAT, body_of(Operation.CHAT, **chat({"type": "text", "text": "x"}, image(PNG, "png"))))
    assert stamp(fetched, SALT, request_id="r", show_reuse=True).body == (
        stamp(own, SALT, request_id="r", show_reuse=True).body
    )


def test_detail_stays() -> None:
    request = unfetched({"type": "image_url", "image_url": {"url": CAT, "detail": "low"}})
    assert sent(with_images(request, {at(CAT): PNG}))[0]["image_url"] == {"url": data_url(PNG, "png"), "detail": "low"}


@pytest.mark.parametrize(("data", "name"), [(GIF, "gif"), (PNG, "png"), (JPEG, "jpeg"), (WEBP, "webp")])
def test_the_type_is_what_the_data_says(data: bytes, name: str) -> None:
    url = sent(with_images(unfetched(remote(f"{HERE}/a.svg")), {at(f"{HERE}/a.svg"): data}))[0]["image_url"]["url"]
    head, _, text = url.partition(",")
    assert (head, b64decode(text)) == (f"data:image/{name};base64", data)


@pytest.mark.parametrize(
    "data", [b"", b"<svg/>", b"\x1f\x8b\x08" + GIF, b"\n" + GIF, b"%PDF-1.7", b"BM" + bytes(60), b"GIF"]
)
def test_what_is_no_image_of_the_known_types_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        with_images(unfetched(image(), remote()), {at(CAT): data})
    assert (caught.value.param, caught.value.reason) == ("messages[0].content[1].image_url.url", "media_type")


def test_an_image_and_their_number_are_bounded_as_those_of_the_request() -> None:
    with pytest.raises(InvalidRequest, match="at most 128 bytes"):
        with_images(unfetched(remote()), {at(CAT): PNG + bytes(128)})
    assert "at most 3 images" in refused(remote(), image(), remote(), image()).message
    assert "at most 3 images" in refused(remote(), remote(), remote(), remote()).message


def test_an_image_that_was_not_fetched_is_a_fault_and_no_request() -> None:
    request = unfetched(remote(), remote(f"{HERE}/dog.gif"))
    for images in ({}, {at(CAT): GIF}, {at(f"{HERE}/dog.gif"): GIF, at(f"{HERE}/other"): GIF}):
        with pytest.raises(ValueError, match="not fetched"):
            with_images(request, images)


@pytest.mark.parametrize("url", [CAT, f"{HERE}/a,{data_url()}", f"{HERE}/a,AAAA", "http://169.254.169.254/"])
def test_even_a_forged_client_request_takes_no_address_up(url: str) -> None:
    request = read_body(CHAT, body_of(Operation.CHAT, **chat(image())))
    forged = Raw(json.dumps(chat(remote(url))["messages"]).encode())
    with pytest.raises(ValueError, match="must not go up"):
        stamp(
            msgspec.structs.replace(request, fields={**request.fields, "messages": forged}),
            SALT,
            request_id="r",
            show_reuse=True,
        )


def test_where_nobody_fetches_such_a_request_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="in the request itself"):
        read_body(CHAT, body_of(Operation.CHAT, **chat(remote())))


def test_what_may_be_secret_in_an_address_is_not_shown() -> None:
    request = unfetched(remote(f"{HERE}/a?sig=hunter2"))
    assert "hunter2" not in repr(request) + repr(request.remote)


# Where else an address might hide.


@pytest.mark.parametrize(
    "part",
    [
        f'{{"type":"image_url","image_url":{{"url":"{CAT}","url":"{CAT}"}}}}',
        f'{{"type":"image_url","image_url":{{"url":"{CAT}","\\u0075rl":"http://10.0.0.1/"}}}}',
        f'{{"type":"image_url","image_url":{{"url":"{data_url()}","url":"{CAT}"}}}}',
        f'{{"type":"image_url","image_url":{{"url":"{CAT}"}},"image_url":{{"url":"http://10.0.0.1/"}}}}',
        f'{{"type":"image_url","image\\u005furl":{{"url":"{CAT}"}},"image_url":null}}',
    ],
)
def test_an_address_that_is_named_twice_is_refused(part: str) -> None:
    assert refused_raw(part).reason == "doubled_member"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": CAT},
        {"type": "image_url", "image_url": [CAT]},
        {"type": "image_url", "image_url": {"url": {"url": CAT}}},
        {"type": "image_url", "image_url": {"url": [CAT]}},
        {"type": "image_url", "image_url": {"url": None}, "url": CAT},
        {"type": "text", "text": "x", "image_url": {"url": CAT}},
        {"image_url": {"url": CAT}},
        {"type": "input_image", "image_url": CAT},
        {"type": "image", "source": {"type": "url", "url": CAT}},
        {"type": "video_url", "video_url": {"url": CAT}},
        {"type": "audio_url", "audio_url": {"url": CAT}},
        remote(video_url={"url": CAT}),
        remote(audio_url={"url": CAT}),
    ],
)
def test_an_address_elsewhere_in_a_part_is_refused(part: Any) -> None:
    assert str(refused(part).param).startswith("messages[0].content[0]")


def test_an_escaped_address_is_the_same_and_members_beside_it_are_left_out() -> None:
    written = json.dumps(remote()).replace("/", "\\/").replace("https", "\\u0068ttps")
    request = read_request(CHAT, open_body(raw_part(written)))
    assert isinstance(request, UnfetchedRequest)
    assert request.remote[0].address.url == CAT
    beside = {"type": "image_url", "image_url": {"url": CAT, "uuid": "x", "fallback": "http://10.0.0.1/"}}
    assert sent(with_images(unfetched(beside), {at(CAT): GIF})) == [image(uuid=identity(GIF, SALT))]


def test_an_address_in_a_text_or_in_a_tool_stays_text() -> None:
    text = {"type": "text", "text": CAT}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"image_url": {"url": CAT}}}}]
    request = read_body(CHAT, body_of(Operation.CHAT, **chat(text), tools=tools))
    assert sent(request) == [text]


def test_addresses_are_on_for_vllm_with_media_alone_and_as_the_operator_says() -> None:
    for kind in ("vllm", "sglang", "tensorrt-llm", "dynamo"):
        engine = Engine(name="e", kind=kind, urls=("http://a",), media=True, media_hosts=("images.example.com",))
        places = [e.operation for e in profile_of(engine).endpoints if e.media is not None and e.media.elsewhere]
        assert places == ([Operation.CHAT] if kind == "vllm" else [])
    without = profile_of(Engine(name="e", urls=("http://a",), media=True)).endpoint(Operation.CHAT)
    assert without is not None
    with pytest.raises(InvalidRequest, match="no other address is fetched"):
        read_request(without, open_body(body_of(Operation.CHAT, **chat(remote()))))
