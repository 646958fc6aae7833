"""`saltgate demo`: everything embedded, on loopback, with a scene that shows what it is for."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import aiohttp

from config.load import load
from proxy.cli.admin import pages_link
from proxy.demo.called import called_again
from proxy.demo.cast import ALICE, BOB, CAST
from proxy.demo.part import PartFailed
from proxy.demo.picture import picture
from proxy.demo.provider.native_client import SignInFailed, sign_in
from proxy.demo.scene import LENGTHS, Row, SceneFailed, play
from proxy.demo.stage import EngineUrl, Stage, StageFailed, open_stage, redis_server
from proxy.demo.traffic import trickle

# A part that ends takes the scene's request with it: the request's failure is heard of first, the part is the reason.
REASON_SECONDS: Final = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine-url", type=_engine_url, metavar="URL", help="a running vLLM on this machine in place of the simulator"
    )
    parser.add_argument("--model", metavar="NAME", help="the model to ask for; by default the engine's first")
    parser.add_argument("--trials", type=_trials, default=1, metavar="N", help="play the scene N times: medians")
    parser.add_argument("--picture", type=_picture, metavar="FILE", help="write the table as a picture (SVG)")
    parser.add_argument("--once", action="store_true", help="end after the scene")


def run(arguments: argparse.Namespace) -> int:
    try:
        asyncio.run(_demo(arguments))
    except asyncio.CancelledError:
        pass  # Ctrl-C is how a demo ends
    except BrokenPipeError:
        raise  # nobody reads any more; `main` ends without a word
    except (StageFailed, PartFailed, SceneFailed, SignInFailed, OSError) as error:
        sys.stderr.write(f"saltgate demo: {error}\n")
        return 1
    return 0


def _trials(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of trials; write 1 or more")
    return int(text)


def _engine_url(text: str) -> EngineUrl:
    try:
        return EngineUrl(text.removesuffix("/").removesuffix("/v1"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error


def _picture(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} cannot be written; name a file in a folder that is there")
    return path


async def _demo(arguments: argparse.Namespace) -> None:
    _end_on_signals()
    _say("Starting engine, identity provider, directory and gate ...")
    async with open_stage(engine_url=arguments.engine_url, model=arguments.model, redis=redis_server()) as stage:
        await _unless_lost(stage, _perform(stage, arguments))


def _end_on_signals() -> None:
    """The first signal cancels this task; later ones change nothing, for everything is being ended already."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not task.cancelling():
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)


async def _unless_lost(stage: Stage, deed: Coroutine[None, None, None]) -> None:
    """The deed, until it is done or a part of the stage has ended by itself. Raises PartFailed then."""
    loop = asyncio.get_running_loop()
    doing, lost = loop.create_task(deed), loop.create_task(stage.until_lost())
    try:
        await asyncio.wait((doing, lost), return_when=asyncio.FIRST_COMPLETED)
        if doing.done() and doing.exception() is not None:
            await asyncio.wait((lost,), timeout=REASON_SECONDS)
        if lost.done():
            raise lost.result()
        await doing
    finally:
        for task in (doing, lost):
            task.cancel()
        await asyncio.gather(doing, lost, return_exceptions=True)


async def _perform(stage: Stage, arguments: argparse.Namespace) -> None:
    async with aiohttp.ClientSession() as session:
        tokens = {
            role.username: (await sign_in(session, stage.issuer, role.username, role.password)).access_token
            for role in CAST
        }
        _say(_places(stage))
        rows = await _play(session, stage, tokens, arguments.trials)
    if arguments.picture is not None:
        _draw(arguments.picture, rows, stage, arguments)
    if not arguments.once:
        _say(_try_it(stage, tokens[ALICE.username], tokens[BOB.username]))
        await _go_on(stage, tokens, arguments)


async def _go_on(stage: Stage, tokens: Mapping[str, str], arguments: argparse.Namespace) -> None:
    """Until somebody ends it. Behind the simulator some traffic goes on; a real engine is left to whoever owns it."""
    settings = load(stage.configuration).settings
    link = pages_link(settings, now=time.time())  # noqa: TID251 - the clock is handed out here
    _say(_pages(str(link), stage, goes_on=arguments.engine_url is None))
    async with aiohttp.ClientSession() as session:
        if arguments.engine_url is None:
            await trickle(session, stage.public, tokens, model=stage.model)
        await asyncio.Event().wait()


async def _play(session: aiohttp.ClientSession, stage: Stage, tokens: Mapping[str, str], trials: int) -> Sequence[Row]:
    _say(_table_head(trials))
    rows = []
    async for row in play(session, stage.public, tokens, model=stage.model, trials=trials):
        _say(_table_row(row))
        rows.append(row)
    _say(_LEGEND)
    for prompt in [name for name, _ in LENGTHS if name not in {row.prompt for row in rows}]:
        _say(f"  The {prompt} text is longer than this model takes, so it was left out.\n")
    return rows


def _draw(path: Path, rows: Sequence[Row], stage: Stage, arguments: argparse.Namespace) -> None:
    engine = "engine simulator" if arguments.engine_url is None else f"{stage.model} at {stage.engine}"
    trials = "1 trial" if arguments.trials == 1 else f"medians of {arguments.trials} trials"
    title = f"{engine}, {trials}, {datetime.now(UTC):%Y-%m-%d}"
    try:
        path.write_text(picture(rows, title=title), encoding="utf-8")
    except OSError as error:
        raise StageFailed(f"the picture cannot be written: {error}") from error
    _say(f"  The picture of it is in {path}\n")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _places(stage: Stage) -> str:
    people = "\n".join(f"                     {r.username} / {r.password}  ({r.workspace}/{r.project})" for r in CAST)
    account = "" if stage.account is None else f"  your account       {stage.account}  (sign in with a browser)\n"
    return f"""
  saltgate           {stage.public}/v1
{account}\
  health, metrics    {stage.admin}/readyz
                     {stage.admin}/metrics
  identity provider  {stage.issuer}
{people}
  directory          {stage.directory}
  engine             {stage.engine}  (model {stage.model})
  configuration      {stage.configuration}
  logs               {stage.folder}/*.log
"""


_RULE: Final = "  " + "-" * 75


def _table_head(trials: int) -> str:
    medians = "" if trials == 1 else f" Medians of {trials} trials."
    return f"""\
  The same text, sent four times. Who shares a project shares the cache;
  a stranger does not.{medians}

  {"prompt":<8} {"who":<36} {"first token":>12} {"tokens reused":>16}
{_RULE}"""


def _table_row(row: Row) -> str:
    reused = "not told" if row.reused is None else f"{row.reused:,} / {row.prompt_tokens:,}"
    return f"  {row.prompt:<8} {row.who:<36} {row.seconds * 1000:>9,.1f} ms {reused:>16}"


_LEGEND: Final = f"""{_RULE}
  Nobody chose a salt: saltgate stamped one per project, from its key and the
  directory.
"""


def _try_it(stage: Stage, alice: str, bob: str) -> str:
    """What can be pasted begins at the left edge: indented Python cannot be pasted."""
    saltgate = called_again()
    return f"""\
  Ask as Alice:

curl {stage.public}/v1/chat/completions \\
  -H 'Authorization: Bearer {alice}' \\
  -H 'Content-Type: application/json' \\
  -d '{{"model":"{stage.model}","messages":[{{"role":"user","content":"Hello"}}]}}'

  or with the OpenAI SDK (pip install openai):

from openai import OpenAI
client = OpenAI(
    base_url="{stage.public}/w/{ALICE.workspace}/p/{ALICE.project}/v1",
    api_key="{alice}",
)
answer = client.chat.completions.create(
    model="{stage.model}",
    messages=[{{"role": "user", "content": "Hello"}}],
)
print(answer.choices[0].message.content)

  Bob's token, to try what a stranger may not (Alice's project is 403 for him):

{bob}

  Or sign in as people do, with a browser or a code, and let programs ask for
  a fresh token whenever they need one:

{saltgate} login --gate {stage.public}
{saltgate} whoami
export OPENAI_API_KEY=$({saltgate} token)

  Tokens are good for an hour.
"""


def _pages(link: str, stage: Stage, *, goes_on: bool) -> str:
    traffic = " A few requests go on, so that\n  there is something to see." if goes_on else ""
    way = "" if stage.account is None else "\n  Alice is an administrator: her account page leads there, too."
    return f"""\
  See what happens, as administrators do.{traffic} The link is good once,
  for a minute:

{link}

  and this gives another one:

{called_again()} admin ticket -c {shlex.quote(str(stage.configuration))}
{way}
  Ctrl-C ends everything.
"""
