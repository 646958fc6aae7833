"""The salt as a member: of every type, in every place, under every spelling."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tests.parts.hostile.writing import EVIL, EVIL_MEMBER, SALTED, chat, in_message, in_part, member, request

_TWICE = f'{{{EVIL_MEMBER},"model":"tiny","messages":[{{"role":"user","content":"Hello"}}],{EVIL_MEMBER}}}'
_VALUES: Final[Mapping[str, object]] = {
    "a text": EVIL,
    "empty": "",
    "null": None,
    "a number": 1,
    "false": False,
    "a list": [EVIL],
    "an object": {"value": EVIL},
    "a slash": "a/b",
    "long": "x" * 5000,
}
_OTHER_NAMES: Final = (
    "cacheSalt",
    "Cache_Salt",
    "CACHE_SALT",
    "cache-salt",
    "cache.salt",
    " cache_salt",
    "cache_salt ",
    "cache_salt\0",
    "cache_salt[]",
    "cache_s\u0430lt",  # Cyrillic
    "\uff43ache_salt",  # full width
    "cache\u200b_salt",  # a blank without width
    "\ufeffcache_salt",
    "$.cache_salt",
    "extra_key",
    "__proto__",
    "prompt_cache_key",
    "session_id",
    "user",
)
_OBJECTS: Final = (
    "extra_body",
    "nvext",
    "vllm_xargs",
    "kv_transfer_params",
    "ec_transfer_params",
    "extra_args",
    "sampling_params",
    "metadata",
    "body",
    "request",
    "options",
    "cache",
    "disaggregated_params",
    "conversation_params",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "lora_request",
    "chat_template_kwargs",
)
_WHOLE: Final[Mapping[str, str | bytes | dict[str, object]]] = {
    "twice": _TWICE,
    "twice, one escaped": member(f'{EVIL_MEMBER},"\\u0063ache_salt":"{EVIL}"'),
    "escaped": member(f'"\\u0063\\u0061che\\u005fsalt":"{EVIL}"'),
    "escaped, last": member(f'"cache_sal\\u0074":"{EVIL}"'),
    "escaped in capitals": member(f'"cache\\u005Fsalt":"{EVIL}"'),
    "escaped as a pair": member(f'"cache_salt\\ud83d\\ude00":"{EVIL}"'),
    "a lone surrogate": member(f'"cache_salt\\ud800":"{EVIL}"'),
    "blanks": member(f' \t\n"cache_salt" \n: "{EVIL}" '),
    "a control character": member(f'"\tcache_salt":"{EVIL}"'),
    "in a message": in_message(cache_salt=EVIL),
    "in a message, nested": in_message(nvext={"cache_salt": EVIL}),
    "in a part": in_part(cache_salt=EVIL),
    "in a part's cache_control": in_part(cache_control={"type": "ephemeral", "cache_salt": EVIL}),
    "in a tool": chat(tools=[{"type": "function", "function": {"name": "f"}, "cache_salt": EVIL}]),
    "in stream_options": chat(stream=True, stream_options={"cache_salt": EVIL, "include_usage": True}),
    "in response_format": chat(response_format={"type": "text", "cache_salt": EVIL}),
    "in response_format's schema": chat(
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"cache_salt": EVIL}}}
    ),
    "in tool_choice": chat(tool_choice={"type": "function", "function": {"name": "f"}, "cache_salt": EVIL}),
    "in a tool's function": chat(tools=[{"type": "function", "function": {"name": "f", "cache_salt": EVIL}}]),
    "in a message named twice": '{"model":"tiny","messages":[{"role":"user","content":"a","content":"b",'
    + EVIL_MEMBER
    + "}]}",
    "messages named twice": member('"messages":[{"role":"user","content":"other"}]'),
    "model named twice": member('"model":"other"'),
    "model named twice, escaped": member('"\\u006dodel":"other"'),
    "stream named twice": member('"stream":false,"stream":true'),
    "a text that would end the body": json.dumps(chat(user='"}],"cache_salt":"in-a-text"}')),
    "trailing object": json.dumps(chat()) + f"{{{EVIL_MEMBER}}}",
    "trailing line": json.dumps(chat()) + f"\n{{{EVIL_MEMBER}}}\n",
    "trailing comma": json.dumps(chat())[:-1] + f",{EVIL_MEMBER},}}",
    "leading object": f"{{{EVIL_MEMBER}}}" + json.dumps(chat()),
    "a list of two": f"[{json.dumps(chat())},{SALTED}]",
    "a text of JSON": json.dumps(SALTED),
    "a number": "1",
    "nothing": "",
    "an empty object": "{}",
    "comments": "/* */" + SALTED,
    "a comment at the end": SALTED + "// x",
    "single quotes": SALTED.replace('"', "'"),
    "names without quotes": SALTED.replace('"cache_salt"', "cache_salt"),
    "not a number": member(f'"temperature":NaN,{EVIL_MEMBER}'),
    "infinity": member(f'"temperature":-Infinity,{EVIL_MEMBER}'),
    "a hexadecimal number": member(f'"seed":0x10,{EVIL_MEMBER}'),
    "a number of 5,000 digits": member(f'"seed":{"9" * 5000},{EVIL_MEMBER}'),
    "an exponent of 1e999999999": member(f'"temperature":1e999999999,{EVIL_MEMBER}'),
    "deep lists": member(f'"user":{"[" * 5000}{"]" * 5000},{EVIL_MEMBER}'),
    "deep objects": member('"metadata":' + '{"a":' * 1000 + "1" + "}" * 1000),
    "a deep tool schema": member(
        '"tools":[{"type":"function","function":{"name":"f","parameters":' + '{"a":' * 3000 + "1" + "}" * 3000 + "}}]"
    ),
    "many members": member(",".join(f'"x{number}":{number}' for number in range(5000)) + "," + EVIL_MEMBER),
    "a long name": member(f'"{"cache_salt" * 1000}":"{EVIL}"'),
}
CASES: Final[Mapping[str, bytes]] = {
    **{f"top level, {name}": request(chat(cache_salt=value)) for name, value in _VALUES.items()},
    **{f"under the name {name!r}": request(chat() | {name: EVIL}) for name in _OTHER_NAMES},
    **{f"in {name}": request(chat() | {name: {"cache_salt": EVIL}}) for name in _OBJECTS},
    **{name: request(body) for name, body in _WHOLE.items()},
}
