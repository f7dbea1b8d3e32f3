"""examples/serve.py, started on a free port with an export of a random model: it translates, and escapes what it shows."""

import html
import os
import subprocess
import sys
import tempfile
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
        results = ctranslate2.Translator(self.folder).translate_batch([pieces.encode(line, out_type=str) for line in lines],
                                                                      beam_size=4, length_penalty=0.6)
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
        result = ctranslate2.Translator(self.folder).translate_batch(source, target_prefix=[["__de__"]], beam_size=4, length_penalty=0.6)[0]
        wanted = pieces.decode(result.hypotheses[0]).removeprefix("__de__").strip()
        self.assertIn(f'<pre id="translation">{html.escape(wanted)}</pre>', self.page(text=line))
        self.serve("--source-tag", "__xx__")
        self.assertEqual(self.url, "")  # it ended

    def test_requests_that_cannot_be_translated_are_answered(self):
        too_long = urllib.request.Request(self.url, b"", {"Content-Length": "100001"})
        for status, request in (("413", too_long), ("400", self.url)):
            with self.subTest(status), self.assertRaisesRegex(urllib.error.HTTPError, status):
                urllib.request.urlopen(request, None if status == "413" else b"text=" + b"word+" * 3000)


if __name__ == "__main__":
    unittest.main()
