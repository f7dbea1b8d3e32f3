"""examples/serve.py: started on a free port with an export of a random model it translates, and escapes what it shows; as an ASGI
application, with a stub for the model, it takes turns and refuses what it should."""

import asyncio
import contextlib
import html
import importlib.util
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

import ctranslate2
import sentencepiece

from hadal_torch.ctranslate2 import write_ctranslate2
from hadal_torch.tokenizer import parse_vocabulary
from random_models import plain_model, random_text, sentencepiece_model

SERVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples/serve.py")
SPEC = importlib.util.spec_from_file_location("serve", SERVE)
serve = importlib.util.module_from_spec(SPEC)
sys.modules["serve"] = serve  # for dataclasses
SPEC.loader.exec_module(serve)
FORM = {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000", "content-type": "application/x-www-form-urlencoded"}


async def ask(app, lines=(), headers=FORM, method="POST", left=None):
    """Returns (status, page, headers) of a request; `left`: an event, set when the client leaves."""
    body = [urllib.parse.urlencode({"text": "\n".join(lines)}).encode()]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": "/",
             "raw_path": b"/", "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
             "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    sent = []

    async def receive():
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await (left or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]).decode(), dict(sent[0]["headers"])


class Stub:
    """A model that waits for `gate` before each batch, and remembers the first line of each."""

    def __init__(self):
        self.gate, self.called, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, lines):
        self.batches.append(lines[0])
        self.called.set()
        self.gate.wait()
        return [line.upper() for line in lines]


class ApplicationTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.stub = Stub()
        self.addCleanup(self.stub.gate.set)

    async def asyncSetUp(self):
        asyncio.get_running_loop().set_debug(False)  # it complains of a busy machine

    def app(self, translate=None, **limits):
        return serve.application(translate or self.stub, serve.Limits(**{"wait_seconds": 3600, "seconds": 3600, **limits}))

    async def test_a_hundred_short_texts_beside_a_long_one_have_their_turn_or_are_refused(self):
        app = self.app(waiting=64, turn_lines=16)
        tasks = [asyncio.create_task(ask(app, [f"long {i}" for i in range(2000)]))]
        tasks += [asyncio.create_task(ask(app, [f"short {i}"])) for i in range(100)]
        done = set()
        while len(done) < 37:  # nothing is translated yet: 64 wait, the others are refused
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.assertEqual({task.result()[0] for task in done}, {503})
        self.assertIn(b"retry-after", tasks[-1].result()[2])
        self.stub.gate.set()
        answers = await asyncio.gather(*tasks)
        self.assertEqual([status for status, _, _ in answers], [200] * 64 + [503] * 37)
        self.assertEqual(self.stub.batches[:66], ["long 0", *(f"short {i}" for i in range(63)), "long 16", "long 32"])
        self.assertIn('<pre id="translation">SHORT 5</pre>', answers[6][1])
        self.assertIn("LONG 0\nLONG 1\n", answers[0][1])
        self.assertIn("LONG 1999</pre>", answers[0][1])

    async def test_who_waits_too_long_is_refused_and_not_translated(self):
        limits = serve.Limits(wait_seconds=3600, seconds=3600)
        app = serve.application(self.stub, limits)
        first = asyncio.create_task(ask(app, ["first"]))
        await asyncio.to_thread(self.stub.called.wait)
        limits.wait_seconds = 0
        status, _, headers = await ask(app, ["second"])
        self.assertEqual((status, headers[b"retry-after"]), (503, b"5"))
        self.stub.gate.set()
        self.assertEqual((await first)[0], 200)
        self.assertEqual(self.stub.batches, ["first"])

    async def test_the_work_of_a_client_that_leaves_is_given_up(self):
        app, left = self.app(turn_lines=1), asyncio.Event()
        leaving = asyncio.create_task(ask(app, ["a", "b", "c"], left=left))
        other = asyncio.create_task(ask(app, ["other"]))
        left.set()
        self.assertEqual((await leaving)[0], 499)
        self.stub.gate.set()
        self.assertEqual((await other)[0], 200)
        self.assertNotIn("b", self.stub.batches)

    async def test_refusals(self):
        self.stub.gate.set()
        app = self.app(lines=3, body_bytes=1000)
        for status, lines, headers in (
                (400, ["x"], {**FORM, "host": "example.org"}), (403, ["x"], {**FORM, "origin": "http://example.org"}),
                (403, ["x"], {**FORM, "origin": "null"}), (403, ["x"], {**FORM, "sec-fetch-site": "cross-site"}),
                (415, ["x"], {**FORM, "content-type": "text/plain"}), (413, ["x"] * 4, FORM), (413, ["x" * 2000], FORM),
                (200, ["x"] * 3, FORM), (200, [], FORM), (200, ["x"], {**FORM, "host": "localhost:8000", "origin": "http://localhost:8000"})):
            with self.subTest(status=status, headers=headers):
                self.assertEqual((await ask(app, lines, headers))[0], status)
        self.assertEqual((await ask(app, method="GET"))[0], 200)

    async def test_a_fault_of_the_model_is_no_traceback(self):
        def refuses(lines):
            raise ValueError("too long: <b>")

        def fails(lines):
            raise KeyError("secret")
        status, page, _ = await ask(self.app(refuses), ["x"])
        self.assertEqual((status, "too long: &lt;b&gt;" in page), (400, True))
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            status, page, _ = await ask(self.app(fails), ["x"])
        self.assertEqual(status, 500)
        self.assertNotIn("secret", page)
        self.assertEqual(errors.getvalue(), "serve.py: KeyError: 'secret'\n")


class ServeTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = directory.name
        contents = sentencepiece_model(user_defined_symbols=["__de__", "__en__"])
        size = len(parse_vocabulary("vocabulary.model", contents).tokens)
        plain = plain_model(source_vocabulary=size, target_vocabulary=size, max_positions=512)
        plain.vocabularies = {"vocabulary.model": contents}
        write_ctranslate2(plain, self.folder)
        self.serve()

    def serve(self, *options):
        server = subprocess.Popen([sys.executable, SERVE, self.folder, "--port", "0", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (server.kill(), server.wait(), server.stdout.close()))
        self.url = server.stdout.readline().decode().strip()  # it listens before it prints

    def page(self, **form):
        body = urllib.parse.urlencode(form).encode() if form else None
        with urllib.request.urlopen(self.url, body) as reply:
            return reply.read().decode()

    def test_a_translation(self):
        self.assertRegex(self.url, r"^http://127\.0\.0\.1:\d+/$")
        self.assertIn("<textarea", self.page())
        lines = [*random_text(3), "", "<script>alert(1)</script>"]
        page = self.page(text="\r\n".join(lines))
        pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(self.folder, "vocabulary.model"))
        source = [pieces.encode(line, out_type=str) for line in lines]
        results = ctranslate2.Translator(self.folder).translate_batch(source, beam_size=4, length_penalty=0.6,
                                                                      max_decoding_length=int(1.2 * max(map(len, source))) + 10)
        wanted = "\n".join(pieces.decode(result.hypotheses[0]) for result in results)
        self.assertTrue(wanted.strip())
        self.assertIn(f'<pre id="translation">{html.escape(wanted)}</pre>', page)
        self.assertIn(html.escape(lines[-1]), page)
        self.assertNotIn("<script>", page)

    def test_language_tags(self):
        self.serve("--source-tag", "__en__", "--target-tag", "__de__")
        pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(self.folder, "vocabulary.model"))
        line = random_text(1)[0]
        source = [["__en__", *pieces.encode(line, out_type=str)]]
        result = ctranslate2.Translator(self.folder).translate_batch(source, target_prefix=[["__de__"]], beam_size=4, length_penalty=0.6,
                                                                     max_decoding_length=int(1.2 * len(source[0])) + 10)[0]
        wanted = pieces.decode(result.hypotheses[0]).removeprefix("__de__").strip()
        self.assertIn(f'<pre id="translation">{html.escape(wanted)}</pre>', self.page(text=line))
        self.serve("--source-tag", "__xx__")
        self.assertEqual(self.url, "")  # it ended

    def test_requests_that_cannot_be_translated_are_answered(self):
        too_long = urllib.request.Request(self.url, b"", {"Content-Length": "200001"})
        for status, request in (("413", too_long), ("400", self.url)):
            with self.subTest(status), self.assertRaisesRegex(urllib.error.HTTPError, status):
                urllib.request.urlopen(request, None if status == "413" else b"text=" + b"word+" * 3000)

    def test_what_prevents_a_start_is_one_line(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            for said, arguments in (("has no model.bin", ["/nonexistent"]), ("Address already in use", [self.folder, "--port",
                                                                             str(taken.getsockname()[1])])):
                done = subprocess.run([sys.executable, SERVE, *arguments], capture_output=True, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, rf"^serve.py: .*{said}.*\n$")

    def test_an_interrupt_ends_it_without_a_traceback(self):
        server = subprocess.Popen([sys.executable, SERVE, self.folder, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        url = server.stdout.readline().strip()
        urllib.request.urlopen(url).read()
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.communicate()[1], "")
        self.assertIn(server.returncode, (0, 130, -signal.SIGINT))


if __name__ == "__main__":
    unittest.main()
