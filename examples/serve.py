"""Serves an export of `hadal checkpoint export --format ctranslate2` on a page of this machine. An example, not a server for the internet.

    python3 examples/serve.py first-ct2 --port 8000      # needs: pip install ctranslate2 sentencepiece starlette uvicorn
    python3 examples/serve.py many-ct2 --source-tag __de__      # a model of many languages (--tags deepnet): into German

Requests take turns, a few lines at a time, so that a long text does not hold up short ones. What is too long, or comes when too many
wait, is refused with the reason; the work of a client that leaves is given up. Only this page may send text: other hosts and
other pages' origins are refused.
"""
import argparse
import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import html
import os
import socket
import sys
import urllib.parse

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools/python"))
from pyhadal.options import number  # noqa: E402

PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>hadal</title><form method="post">
<textarea name="text" rows="8" cols="80">{}</textarea><br><button>Translate</button></form><pre id="translation">{}</pre>"""


@dataclasses.dataclass
class Limits:
    body_bytes: int = 200_000
    lines: int = 2_000
    line_tokens: int = 400
    turn_lines: int = 8      # translated together; then it is the next request's turn
    waiting: int = 64        # requests at a time
    wait_seconds: float = 4  # until its first turn
    seconds: float = 60      # for the whole request
    body_seconds: float = 30


class Answer(Exception):
    """An answer that is not a translation: (HTTP status, reason)."""


class Job:
    def __init__(self, lines):
        self.lines, self.done, self.began, self.ended = lines, [], asyncio.Event(), asyncio.Event()
        self.cancelled, self.error = False, None


class Turns:
    """Translates the lines of all requests in one thread, in turns. Used by the event loop alone."""

    def __init__(self, translate, limits):
        self.translate, self.limits = translate, limits
        self.jobs, self.task, self.count = collections.deque(), None, 0
        self.thread = concurrent.futures.ThreadPoolExecutor(1)

    async def run(self, lines, left):
        """Returns the translations. `left`: a coroutine function that ends if the client leaves. Errors: Answer, and what translate raises."""
        if self.count >= self.limits.waiting:
            raise Answer(503, f"{self.count} requests are waiting already; try again later")
        job, leaving = Job(lines), asyncio.create_task(left())
        self.count += 1
        self.jobs.append(job)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._work())
        try:
            for event, seconds in (job.began, self.limits.wait_seconds), (job.ended, self.limits.seconds):
                waiting = asyncio.create_task(event.wait())
                await asyncio.wait((waiting, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if leaving.done():
                    raise Answer(499, "the client left")
                if not event.is_set():
                    raise Answer(503, f"not done after {seconds:g} seconds; try again later, or send fewer lines")
            if isinstance(job.error, (RuntimeError, ValueError)):  # such as a line that is too long
                raise Answer(400, str(job.error))
            if job.error:
                raise job.error
            return job.done
        finally:
            job.cancelled = True
            leaving.cancel()
            self.count -= 1

    async def _work(self):
        while self.jobs:
            job = self.jobs.popleft()
            if job.cancelled:
                continue
            job.began.set()
            lines = job.lines[len(job.done):][:self.limits.turn_lines]
            try:
                job.done += await asyncio.get_running_loop().run_in_executor(self.thread, self.translate, lines)
            except Exception as error:
                job.error = error
            if job.error or len(job.done) >= len(job.lines):
                job.ended.set()
            else:
                self.jobs.append(job)


def application(translate, limits=Limits()):
    """Returns the page as an ASGI application. `translate`: from a list of lines to their translations; ValueError refuses them."""
    turns = Turns(translate, limits)

    async def text_of(request):
        origin = request.headers.get("origin", f"http://{request.headers['host']}")
        if origin != f"http://{request.headers['host']}" or request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Answer(403, "text is taken from this page alone")
        if request.headers.get("content-type", "").split(";")[0] != "application/x-www-form-urlencoded":
            raise Answer(415, "a form is expected (application/x-www-form-urlencoded)")
        too_long = Answer(413, f"more than {limits.body_bytes:,} bytes")
        length, body = request.headers.get("content-length", "0"), b""
        if not length.isdecimal() or int(length[:20]) > limits.body_bytes:
            raise too_long
        async for part in request.stream():
            body += part
            if len(body) > limits.body_bytes:
                raise too_long
        return urllib.parse.parse_qs(body.decode(errors="replace")).get("text", [""])[0]

    async def left(request):
        with contextlib.suppress(Exception):  # whatever a lost connection is to the server
            while (await request.receive())["type"] != "http.disconnect":
                pass

    async def page(request: Request):
        text = ""
        try:
            if request.method != "POST":
                return HTMLResponse(PAGE.format("", ""))
            text = await asyncio.wait_for(text_of(request), limits.body_seconds)
            lines = text.splitlines()
            if len(lines) > limits.lines:
                raise Answer(413, f"{len(lines):,} lines; at most {limits.lines:,}")
            done = await turns.run(lines, lambda: left(request)) if lines else []
            return HTMLResponse(PAGE.format(html.escape(text), html.escape("\n".join(done))))
        except Answer as answer:
            status, reason = answer.args
        except asyncio.TimeoutError:
            status, reason = 408, f"the request did not arrive in {limits.body_seconds:g} seconds"
        except ClientDisconnect:
            status, reason = 499, "the client left"
        except Exception as error:  # a fault of this program: one line here, nothing of it for the client
            print(f"serve.py: {type(error).__name__}: {error}", file=sys.stderr)
            status, reason = 500, "an error of the server"
        headers = {"Retry-After": "5"} if status == 503 else {}
        return HTMLResponse(PAGE.format(html.escape(text), html.escape(reason)), status, headers)

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return Starlette(routes=[Route("/", page, methods=["GET", "POST"])], middleware=[hosts])


def translator_of(arguments, limits):
    """Loads the export. Returns `application`'s translate. Errors: ValueError."""
    import ctranslate2
    import sentencepiece
    if not os.path.isfile(os.path.join(arguments.folder, "model.bin")):
        raise ValueError(f"{arguments.folder} has no model.bin; give the folder of `hadal checkpoint export --format ctranslate2`")
    translator = ctranslate2.Translator(arguments.folder)
    files = [os.path.join(arguments.folder, side + "vocabulary.model") for side in ("source.", "target.", "")]
    source, target = (sentencepiece.SentencePieceProcessor(f if os.path.exists(f) else files[2]) for f in files[:2])
    source_tag, target_tag = arguments.source_tag, arguments.target_tag
    if source.unk_id() in source.piece_to_id(source_tag) or target.unk_id() in target.piece_to_id(target_tag):
        raise ValueError("the vocabulary lacks this tag")

    def translate(lines):
        pieces = [source_tag + line for line in source.encode(lines, out_type=str)]
        for line, tokens in zip(lines, pieces):
            if len(tokens) > limits.line_tokens:
                raise ValueError(f"a line of {len(tokens):,} tokens; at most {limits.line_tokens}: {line[:40]} …")
        longest = int(1.2 * max(map(len, pieces))) + 10  # as hadal's decode.max_length_a and _b
        results = translator.translate_batch(pieces, target_prefix=[target_tag] * len(pieces), beam_size=4, length_penalty=0.6,
                                             max_decoding_length=longest)
        return target.decode([result.hypotheses[0][len(target_tag):] for result in results])
    return translate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--port", type=number(int, 0, 65535), default=8000, help="0: any free one")
    parser.add_argument("--source-tag", nargs=1, default=[], help="stands before each line")
    parser.add_argument("--target-tag", nargs=1, default=[], help="begins each translation, and is not shown")
    arguments, limits = parser.parse_args(), Limits()
    try:
        translate = translator_of(arguments, limits)
        listener = socket.create_server(("127.0.0.1", arguments.port))
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"serve.py: {error}")
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    config = uvicorn.Config(application(translate, limits), log_level="critical", limit_concurrency=256, timeout_keep_alive=5,
                            timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
