#!/usr/bin/env python3
"""Serves a model on a local page: a text field, and below it the translation of each line.

    hadal checkpoint export runs/first --format ctranslate2 -o first-ct2
    pip install ctranslate2 sentencepiece
    python3 examples/serve.py first-ct2 --port 8000

An example of how to use the export, not a server for the internet: it listens on this machine alone, and knows no users.
"""

import argparse
import html
import os
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import ctranslate2
import sentencepiece

PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>hadal</title></head><body>
<form method="post"><textarea name="text" rows="8" cols="80">{text}</textarea><br><button>Translate</button></form>
<pre id="translation">{translation}</pre></body></html>"""
MOST_BYTES = 100_000  # of a request


def vocabulary(folder, side):
    """The SentencePiece model of "source" or "target": its own, or the one of both."""
    own = os.path.join(folder, f"{side}.vocabulary.model")
    return sentencepiece.SentencePieceProcessor(model_file=own if os.path.exists(own) else os.path.join(folder, "vocabulary.model"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what `hadal checkpoint export --format ctranslate2` wrote")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one")
    arguments = parser.parse_args()
    translator = ctranslate2.Translator(arguments.folder)
    source, target = vocabulary(arguments.folder, "source"), vocabulary(arguments.folder, "target")

    def translate(text):
        pieces = [source.encode(line, out_type=str) for line in text.splitlines()]
        results = translator.translate_batch(pieces, beam_size=4, length_penalty=0.6, max_batch_size=2048, batch_type="tokens")
        return "\n".join(target.decode(result.hypotheses[0]) for result in results)

    class Page(BaseHTTPRequestHandler):
        timeout = 30  # seconds for a request to arrive

        def answer(self, status, text="", translation=""):
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(PAGE.format(text=html.escape(text), translation=html.escape(translation)).encode())

        def do_GET(self):
            self.answer(200 if self.path == "/" else 404)

        def do_POST(self):
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                return self.answer(413, translation=f"a request of {length[:20]} bytes; at most {MOST_BYTES} are read")
            text = urllib.parse.parse_qs(self.rfile.read(int(length)).decode(errors="replace")).get("text", [""])[0]
            try:
                self.answer(200, text, translate(text))
            except (RuntimeError, ValueError) as error:  # such as a line of more tokens than the model has positions
                self.answer(400, text, str(error))

    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Page)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
