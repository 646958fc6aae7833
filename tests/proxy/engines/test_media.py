"""Images where they are switched on: which may come, and that each goes up under an identity of its unit's alone."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import re
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from config.settings import Engine, EngineLimits
from proxy.engines.body import read_body
from proxy.engines.kinds import profile_of
from proxy.engines.kinds.vllm import vllm, vllm_with_images
from proxy.engines.media import identity
from proxy.engines.profile import Endpoint, Operation
from proxy.engines.rules import brings_media
from proxy.engines.stamp import CountRequest, stamp
from proxy.engines.texts import texts
from proxy.isolation.narrowing import Unseen
from proxy.isolation.salt import Salt, SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import SALT, body_of

KEY = SaltKey("k1", b"0123456789abcdef0123456789abcdef")
OTHER_UNIT = salt_for(ProjectUnit("acme", "ares"), epoch=0, key=KEY)
OTHER_EPOCH = salt_for(ProjectUnit("acme", "apollo"), epoch=1, key=KEY)
GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\4\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\1D\0;"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(90))
JPEG = b"\xff\xd8\xff\xe0" + bytes(40)
WEBP = b"RIFF\x24\0\0\0WEBPVP8 " + bytes(30)
LIMITS = EngineLimits(media_parts=3, media_bytes=128)
PROFILE = vllm_with_images(LIMITS)
EVIL = "tenant-x-invoice-42"


def endpoint_of(operation: Operation) -> Endpoint:
    endpoint = PROFILE.endpoint(operation)
    assert endpoint is not None
    return endpoint


CHAT = endpoint_of(Operation.CHAT)


def data_url(media: bytes = GIF, name: str = "gif") -> str:
    return f"data:image/{name};base64,{b64encode(media).decode()}"


def image(media: bytes = GIF, name: str = "gif", **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(media, name)}} | more


def chat(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(parts)}]}


def sent(*parts: Any, salt: Salt = SALT, role: str = "user") -> list[Any]:
    """The parts as the engine gets them."""
    return sent_raw(body_of(Operation.CHAT, **chat(*parts, role=role)), salt=salt)


def sent_raw(body: bytes, salt: Salt = SALT) -> list[Any]:
    request = stamp(read_body(CHAT, body), salt, request_id="r", show_reuse=True)
    parts: list[Any] = json.loads(request.body)["messages"][0]["content"]
    return parts


def refused(*parts: Any, operation: Operation = Operation.CHAT) -> InvalidRequest:
    return refused_raw(body_of(operation, **chat(*parts)), operation)


def refused_raw(body: bytes, operation: Operation = Operation.CHAT) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_body(endpoint_of(operation), body)
    return caught.value


def raw_part(part: str) -> bytes:
    return b'{"model":"tiny","messages":[{"role":"user","content":[%b]}]}' % part.encode()


# What goes up.


def test_an_image_goes_up_as_it_came_under_an_identity_of_salt_and_image() -> None:
    text = {"type": "text", "text": "What is it?"}
    expected = hmac.new(SALT.value.encode(), hashlib.sha256(GIF).digest(), "sha256").hexdigest()
    assert sent(text, image()) == [text, image() | {"uuid": expected}]


@pytest.mark.parametrize(("media", "name"), [(GIF, "gif"), (PNG, "png"), (JPEG, "jpeg"), (WEBP, "webp")])
def test_the_known_types_pass(media: bytes, name: str) -> None:
    assert sent(image(media, name)) == [image(media, name, uuid=identity(media, SALT))]


def test_the_identity_is_the_same_inside_the_unit_and_another_in_any_other() -> None:
    mine, again = sent(image())[0]["uuid"], sent({"type": "text", "text": "x"}, image())[1]["uuid"]
    others = {sent(image(), salt=salt)[0]["uuid"] for salt in (OTHER_UNIT, OTHER_EPOCH)}
    assert mine == again
    assert len(others | {mine}) == 3


def test_another_image_has_another_identity_in_the_unit() -> None:
    assert len({part["uuid"] for part in sent(image(), image(PNG, "png"), image(GIF + b"\0"))}) == 3


def test_the_identity_is_hexadecimal_as_connectors_want_it() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", sent(image())[0]["uuid"])


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_every_role_s_images_get_their_identity(role: str) -> None:
    assert sent(image(uuid=EVIL), role=role)[0]["uuid"] == identity(GIF, SALT)


def test_each_message_and_part_gets_its_own() -> None:
    messages = [*chat(image(), image(PNG, "png"))["messages"], *chat(image())["messages"]]
    request = stamp(read_body(CHAT, body_of(Operation.CHAT, messages=messages)), SALT, request_id="r", show_reuse=True)
    found = [part["uuid"] for message in json.loads(request.body)["messages"] for part in message["content"]]
    assert found == [identity(GIF, SALT), identity(PNG, SALT), identity(GIF, SALT)]


@pytest.mark.parametrize("detail", ["auto", "low", "high"])
def test_detail_passes(detail: str) -> None:
    part = {"type": "image_url", "image_url": {"url": data_url(), "detail": detail}}
    assert sent(part)[0]["image_url"]["detail"] == detail


def test_messages_without_images_go_up_byte_for_byte() -> None:
    content = b'[ {"type":"text", "text":"a\\u0062"} ]'
    body = b'{"model":"tiny","messages":[{"role":"user","content":%b}]}' % content
    assert content in stamp(read_body(CHAT, body), SALT, request_id="r", show_reuse=True).body


# Whoever wants another identity.

FORGED = [
    f'{{"type":"image_url","uuid":"{EVIL}","image_url":{{"url":"{data_url()}"}}}}',
    f'{{"type":"image_url","image_url":{{"url":"{data_url()}"}},"uuid":null}}',
    f'{{"type":"image_url","image_url":{{"url":"{data_url()}"}},"uuid":["{EVIL}"]}}',
    f'{{"type":"image_url","image_url":{{"url":"{data_url()}"}},"\\u0075uid":"{EVIL}"}}',
    f'{{"type":"image_url","image_url":{{"url":"{data_url()}","uuid":"{EVIL}"}}}}',
    f'{{"type":"image_url","image\\u005furl":{{"\\u0075rl":"{data_url()}"}},"UUID":"{EVIL}","Uuid":"{EVIL}"}}',
    f'{{"type":"image\\u005furl","image_url":{{"url":"{data_url()}"}},"mm_hash":"{EVIL}","identifier":"{EVIL}"}}',
    f'{{"type":"image_url","image_url":{{"url":"{data_url()}"}},"cache_salt":"{EVIL}","text":"{EVIL}"}}',
]


@pytest.mark.parametrize("part", FORGED)
def test_no_spelling_of_an_identity_reaches_the_engine(part: str) -> None:
    assert sent_raw(raw_part(part)) == [image(uuid=identity(GIF, SALT))]


@pytest.mark.parametrize(
    "part",
    [
        f'{{"type":"image_url","uuid":"{EVIL}","uuid":"x","image_url":{{"url":"{data_url()}"}}}}',
        f'{{"type":"image_url","image_url":{{"url":"{data_url()}"}},"image_url":null}}',
        f'{{"type":"image_url","image_url":{{"url":"{data_url()}"}},"image\\u005furl":{{"url":"{data_url()}"}}}}',
        f'{{"type":"image_url","image_url":{{"url":"{data_url()}","url":"http://10.0.0.1/"}}}}',
        f'{{"type":"image_url","image_url":{{"url":"http://10.0.0.1/","\\u0075rl":"{data_url()}"}}}}',
        f'{{"type":"text","type":"image_url","image_url":{{"url":"{data_url()}"}}}}',
    ],
)
def test_a_member_named_twice_is_refused_at_every_level_of_an_image(part: str) -> None:
    assert refused_raw(raw_part(part)).reason == "doubled_member"


def test_even_a_forged_client_request_goes_up_under_our_identity() -> None:
    request = read_body(CHAT, body_of(Operation.CHAT, **chat(image())))
    forged = Raw(json.dumps(chat(image(uuid=EVIL))["messages"]).encode())
    body = stamp(
        msgspec.structs.replace(request, fields={**request.fields, "messages": forged}),
        SALT,
        request_id="r",
        show_reuse=True,
    ).body
    assert EVIL.encode() not in body
    assert identity(GIF, SALT).encode() in body


def test_no_table_can_let_images_pass_without_the_place_of_their_identity() -> None:
    with pytest.raises(ValueError, match="would get no identity"):
        dataclasses.replace(CHAT, media=None)
    text_only = vllm(LIMITS).endpoint(Operation.CHAT)
    assert text_only is not None
    with pytest.raises(ValueError, match="would get no identity"):
        dataclasses.replace(text_only, fields={**text_only.fields, "input": CHAT.fields["messages"]})


def test_an_endpoint_without_a_salt_takes_no_images() -> None:
    unsalted = dataclasses.replace(CHAT, salt=None, streams=False)
    request = read_body(unsalted, body_of(Operation.CHAT, **chat(image())))
    with pytest.raises(ValueError, match="needs a salt"):
        CountRequest(request, request_id="r")
    with pytest.raises(ValueError, match="no place for a salt"):
        stamp(request, SALT, request_id="r", show_reuse=True)


# What may not come.

BASE64 = b64encode(GIF).decode()


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://example.com/x.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        "data:,",
        f"data:image/gif,{BASE64}",
        f"data:;base64,{BASE64}",
        f"data:base64,{BASE64}",
        f"data:image/gif;charset=utf-8;base64,{BASE64}",
        f"data:image/gif;base64;x=y,{BASE64}",
        f"data:image/gif;base64;base64,{BASE64}",
        f"data:image/gif; base64,{BASE64}",
        f" data:image/gif;base64,{BASE64}",
        f"data: image/gif;base64,{BASE64}",
        f"DATA:image/gif;base64,{BASE64}",
        f"data:IMAGE/GIF;base64,{BASE64}",
        f"data:image/gif;BASE64,{BASE64}",
        f"data:image%2Fgif;base64,{BASE64}",
        f"data:image/gif%3Bbase64,{BASE64}",
        f"data:image/svg+xml;base64,{b64encode(b'<svg/>').decode()}",
        f"data:image/tiff;base64,{BASE64}",
        f"data:image/jpg;base64,{BASE64}",
        f"data:text/html;base64,{BASE64}",
        f"data:application/octet-stream;base64,{BASE64}",
        f"data:video/mp4;base64,{BASE64}",
        f"http://10.0.0.1/#data:image/gif;base64,{BASE64}",
        "data:image/gif;base64,",
        f"data:image/gif;base64,,{BASE64}",
        f"data:image/gif;base64, {BASE64}",
        f"data:image/gif;base64,{BASE64}\n",
        f"data:image/gif;base64,{BASE64[:40]}\n{BASE64[40:]}",
        f"data:image/gif;base64,{BASE64[:40]}    {BASE64[40:]}",
        f"data:image/gif;base64,{BASE64}====",
        f"data:image/gif;base64,{BASE64[:-1]}",
        f"data:image/gif;base64,{BASE64[:40]}===={BASE64[40:]}",
        f"data:image/gif;base64,{b64encode(GIF[:39]).decode()[:43]}={b64encode(GIF[:39]).decode()[44:]}",
        f"data:image/gif;base64,{BASE64[:40]}%2B{BASE64[40:]}a",
        f"data:image/gif;base64,{BASE64[:40]}-_--{BASE64[40:]}",
        f"data:image/gif;base64,{BASE64[:40]}\u00e4\u00e4\u00e4\u00e4{BASE64[40:]}",
        f"data:image/gif;base64,{BASE64[:40]}\0\0\0\0{BASE64[40:]}",
        # the same bytes in another spelling: the last character's unused bits
        f"data:image/gif;base64,{b64encode(b'GIF89a' + bytes(2)).decode()[:-2]}B=",
        data_url(PNG, "gif"),
        data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "png"),
        data_url(b"%!PS-Adobe-3.0 EPSF-3.0", "jpeg"),
        data_url(b"RIFF\x24\0\0\0AVI LIST", "webp"),
        data_url(b"\n" + GIF, "gif"),
    ],
)
def test_only_one_spelling_of_an_image_in_the_request_passes(url: str) -> None:
    refusal = refused({"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": url}})
    assert refusal.param == "messages[0].content[1].image_url.url"
    assert "must be" in refusal.message
    assert BASE64 not in refusal.message


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url"},
        {"type": "image_url", "uuid": EVIL},
        {"type": "image_url", "image_url": None, "uuid": EVIL},
        {"type": "image_url", "image_url": {}, "uuid": EVIL},
        {"type": "image_url", "image_url": {"url": None}, "uuid": EVIL},
        {"type": "image_url", "image_url": {"url": [data_url()]}},
        {"type": "image_url", "image_url": data_url()},
        {"type": "image_url", "image_url": [data_url()]},
        {"type": "image_url", "image_url": {"url": data_url(), "detail": "ultra"}},
        {"type": "image_url", "image_url": {"url": data_url(), "detail": None}},
        {"type": "image_url", "image_url": {"url": data_url(), "detail": {"uuid": EVIL}}},
    ],
)
def test_an_image_without_its_data_is_refused(part: Any) -> None:
    assert str(refused(part).param).startswith("messages[0].content[0].image_url")


@pytest.mark.parametrize(
    "part",
    [
        {"image_url": {"url": data_url()}},
        {"image_url": {"url": data_url()}, "uuid": EVIL},
        {"type": None, "image_url": {"url": data_url()}},
        {"type": "text", "text": "x", "image_url": {"url": data_url()}},
        {"type": "IMAGE_URL", "image_url": {"url": data_url()}},
        {"type": "input_image", "image_url": data_url()},
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": BASE64}},
        {"type": "image_embeds", "image_embeds": "AAAA", "uuid": EVIL},
        {"type": "image_pil", "image_pil": EVIL},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        image(image_embeds="AAAA"),
        image(image_pil=None),
        image(video_url={"url": data_url()}),
        image(input_audio={"data": "AAAA", "format": "wav"}),
        image(prompt_embeds="AAAA"),
    ],
)
def test_other_media_stay_refused_and_nothing_of_them_stands_beside_an_image(part: Any) -> None:
    refusal = refused(part)
    assert "only images" in refusal.message
    assert str(refusal.param).startswith("messages[0].content[0].")


@pytest.mark.parametrize("operation", [Operation.MESSAGES, Operation.COUNT_TOKENS])
@pytest.mark.parametrize("part", [image(), {"type": "image", "source": {"type": "base64", "data": BASE64}}])
def test_messages_and_counting_take_no_images(operation: Operation, part: Any) -> None:
    assert "Media are not enabled" in refused(part, operation=operation).message


@pytest.mark.parametrize("part", [image(), {"type": "input_image", "image_url": data_url()}])
def test_responses_take_no_images(part: Any) -> None:
    body = body_of(Operation.RESPONSES, input=[{"role": "user", "content": [part]}])
    assert "Media are not enabled" in refused_raw(body, Operation.RESPONSES).message


def test_an_image_and_their_number_are_bounded() -> None:
    assert len(sent(image(), image(), image(GIF + bytes(128 - len(GIF))))) == 3
    assert "at most 3 images" in refused(image(), image(), image(), image()).message
    assert "at most 128 bytes" in refused(image(GIF + bytes(129 - len(GIF)))).message
    spread = {"messages": [message for _ in range(4) for message in chat(image())["messages"]]}
    assert "at most 3 images" in refused_raw(body_of(Operation.CHAT, **spread)).message


def test_slashes_escaped_as_php_writes_them_are_the_same_image() -> None:
    written = json.dumps(image(PNG, "png")).replace("/", "\\/")
    assert sent_raw(raw_part(written)) == sent(image(PNG, "png"))


# What it is worth with the other rules.


def test_rules_that_look_at_texts_cannot_look_at_an_image() -> None:
    request = read_body(CHAT, body_of(Operation.CHAT, **chat({"type": "text", "text": "x"}, image())))
    assert texts(request, limit_bytes=2**20) is Unseen.UNSCANNABLE


def test_images_are_on_for_vllm_alone_and_only_where_the_operator_says_so() -> None:
    for kind in ("vllm", "sglang", "tensorrt-llm", "dynamo"):
        for media in (False, True):
            engine = Engine(name="e", kind=kind, urls=("http://127.0.0.1:1",), media=media)
            taking = [
                endpoint.operation
                for endpoint in profile_of(engine).endpoints
                if any(brings_media(line.rule) for line in endpoint.fields.values())
            ]
            assert taking == ([Operation.CHAT] if kind == "vllm" and media else [])
