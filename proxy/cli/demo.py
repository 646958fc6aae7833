"""`saltgate demo`: everything embedded, on loopback, with a scene that shows what it is for."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import Final

import aiohttp

from proxy.demo.cast import ALICE, BOB, CAST
from proxy.demo.provider.native_client import SignInFailed, sign_in
from proxy.demo.scene import Row, SceneFailed, play
from proxy.demo.stage import Stage, StageFailed, open_stage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine-url", metavar="URL", help="a running vLLM in place of the simulator (loopback)")
    parser.add_argument("--model", metavar="NAME", help="the model to ask for; by default the engine's first")
    parser.add_argument("--trials", type=_positive, default=1, metavar="N", help="play the scene N times: medians")
    parser.add_argument("--once", action="store_true", help="end after the scene")


def run(arguments: argparse.Namespace) -> int:
    try:
        return asyncio.run(_demo(arguments))
    except (StageFailed, SceneFailed, SignInFailed) as error:
        sys.stderr.write(f"saltgate demo: {error}\n")
        return 1
    except asyncio.CancelledError:
        return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


async def _demo(arguments: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    _say("Starting engine, identity provider, directory and gate ...")
    async with (
        open_stage(engine_url=arguments.engine_url, model=arguments.model) as stage,
        aiohttp.ClientSession() as session,
    ):
        tokens = {
            role.username: (await sign_in(session, stage.issuer, role.username, role.password)).access_token
            for role in CAST
        }
        _say(_places(stage))
        _say(_TABLE_HEAD)
        async for row in play(session, stage.public, tokens, model=stage.model, trials=arguments.trials):
            _say(_table_row(row))
        _say(_LEGEND)
        if not arguments.once:
            _say(_try_it(stage, tokens[ALICE.username], tokens[BOB.username]))
            await asyncio.Event().wait()
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _places(stage: Stage) -> str:
    people = "\n".join(f"                     {r.username} / {r.password}  ({r.workspace}/{r.project})" for r in CAST)
    return f"""
  saltgate           {stage.public}/v1
  health, metrics    {stage.admin}/readyz  {stage.admin}/metrics
  identity provider  {stage.issuer}
{people}
  directory          {stage.directory}
  engine             {stage.engine}  (model {stage.model})
  configuration      {stage.configuration}
  log                {stage.log}
"""


_RULE: Final = "  " + "-" * 78
_TABLE_HEAD: Final = f"""\
  The same text, sent by four hands. Who shares a project shares the cache; a stranger does not.

  {"prompt":<8} {"who":<40} {"first token":>13} {"tokens reused":>14}
{_RULE}"""


def _table_row(row: Row) -> str:
    reused = "not told" if row.reused is None else f"{row.reused:,} / {row.prompt_tokens:,}"
    return f"  {row.prompt:<8} {row.who:<40} {row.seconds * 1000:>10.1f} ms {reused:>14}"


_LEGEND: Final = f"""{_RULE}
  Nobody chose a salt: saltgate stamped one per project, from its key and the directory.
"""


def _try_it(stage: Stage, alice: str, bob: str) -> str:
    return f"""\
  Ask as Alice:

    curl {stage.public}/v1/chat/completions \\
      -H 'Authorization: Bearer {alice}' \\
      -H 'Content-Type: application/json' \\
      -d '{{"model":"{stage.model}","messages":[{{"role":"user","content":"Hello"}}],"stream":true}}'

  or with the OpenAI SDK (pip install openai):

    from openai import OpenAI
    client = OpenAI(base_url="{stage.public}/w/acme/p/apollo/v1", api_key="{alice}")
    print(client.chat.completions.create(model="{stage.model}", messages=[{{"role": "user", "content":
    "Hello"}}]).usage)

  Bob's token, to try what a stranger may not (another workspace's project is 403):

    {bob}

  Tokens are good for an hour. Ctrl-C ends everything.
"""
