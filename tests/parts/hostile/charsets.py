"""The body in another dress: charsets, marks, codings."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from typing import Final

from tests.parts.hostile.writing import EVIL, SALTED, member, request

_PLAIN = SALTED.encode()
CASES: Final[Mapping[str, bytes]] = {
    "UTF-16": request(SALTED.encode("utf-16")),
    "UTF-16 without a mark": request(SALTED.encode("utf-16-le")),
    "UTF-16 that says so": request(SALTED.encode("utf-16-be"), kind="application/json; charset=utf-16be"),
    "UTF-32": request(SALTED.encode("utf-32")),
    "UTF-7 that says so": request(SALTED.encode("utf-7"), kind="application/json; charset=utf-7"),
    "UTF-8 that says UTF-16": request(_PLAIN, kind="application/json; charset=utf-16"),
    "EBCDIC": request(SALTED.encode("cp500")),
    "a byte order mark": request(b"\xef\xbb\xbf" + _PLAIN),
    "Latin-1": request(member('"user":"\xe9"').encode("latin-1")),
    "an overlong sequence": request(member(f'"cache\xc1\x9fsalt":"{EVIL}"').encode("latin-1")),
    "a surrogate in UTF-8": request(member(f'"cache_salt\xed\xa0\x80":"{EVIL}"').encode("latin-1")),
    "a cut sequence": request(_PLAIN[:-1] + b"\xc3}"),
    "bytes above Unicode": request(member('"user":"\xf4\x90\x80\x80"').encode("latin-1")),
    "a NUL before": request(b"\0" + _PLAIN),
    "a NUL after": request(_PLAIN + b"\0"),
    "a NUL within": request(_PLAIN.replace(b"tiny", b"ti\0ny")),
    "a form feed before": request(b"\f" + _PLAIN),
    "gzip": request(gzip.compress(_PLAIN), "Content-Encoding: gzip"),
    "gzip that does not say so": request(gzip.compress(_PLAIN)),
    "gzip that says identity first": request(
        gzip.compress(_PLAIN), "Content-Encoding: identity", "Content-Encoding: gzip"
    ),
    "deflate": request(zlib.compress(_PLAIN), "Content-Encoding: deflate"),
    "br, but plain": request(_PLAIN, "Content-Encoding: br"),
    "identity and gzip": request(_PLAIN, "Content-Encoding: identity, gzip"),
    "an empty coding": request(_PLAIN, "Content-Encoding:"),
    "a form": request(f"cache_salt={EVIL}&model=tiny", kind="application/x-www-form-urlencoded"),
    "multipart": request(
        f'--x\r\nContent-Disposition: form-data; name="cache_salt"\r\n\r\n{EVIL}\r\n--x--\r\n',
        kind="multipart/form-data; boundary=x",
    ),
    "MessagePack": request(b"\x81\xaacache_salt\xa4evil", kind="application/msgpack"),
    "plain text": request(_PLAIN, kind="text/plain"),
    "no type": request(_PLAIN, kind=""),
    "two types": request(_PLAIN, "Content-Type: text/plain"),
    "a type in capitals": request(_PLAIN, kind="APPLICATION/JSON"),
    "a type with an ending": request(_PLAIN, kind="application/json+evil"),
    "a type of lines": request(SALTED + "\n" + SALTED, kind="application/x-ndjson"),
}
