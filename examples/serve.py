"""Serves an export of `hadal checkpoint export --format ctranslate2` on a local page. An example, not a server for the internet.

    python3 examples/serve.py first-ct2 --port 8000      # needs: pip install ctranslate2 sentencepiece
    python3 examples/serve.py many-ct2 --source-tag __de__      # a model of many languages (--tags deepnet): into German
"""
import argparse
import html
import os
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import ctranslate2
import sentencepiece

PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>hadal</title><form method="post">
<textarea name="text" rows="8" cols="80">{}</textarea><br><button>Translate</button></form><pre id="translation">{}</pre>"""
parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--port", type=int, default=8000)  # 0: any free one
parser.add_argument("--source-tag", nargs=1, default=[], help="stands before each line")
parser.add_argument("--target-tag", nargs=1, default=[], help="begins each translation, and is not shown")
arguments = parser.parse_args()
translator = ctranslate2.Translator(arguments.folder)
files = [os.path.join(arguments.folder, side + "vocabulary.model") for side in ("source.", "target.", "")]
source, target = (sentencepiece.SentencePieceProcessor(f if os.path.exists(f) else files[2]) for f in files[:2])
source_tag, target_tag = arguments.source_tag, arguments.target_tag
if source.unk_id() in source.piece_to_id(source_tag) or target.unk_id() in target.piece_to_id(target_tag):
    parser.error("the vocabulary lacks this tag")

class Page(BaseHTTPRequestHandler):
    timeout = 30  # seconds for a request to arrive

    def answer(self, status, text="", translation=""):
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(PAGE.format(html.escape(text), html.escape(translation)).encode())

    def do_GET(self):
        self.answer(200 if self.path == "/" else 404)

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > 100_000:
            return self.answer(413, translation=f"a request of {length[:20]} bytes; at most 100,000 are read")
        text = urllib.parse.parse_qs(self.rfile.read(int(length)).decode(errors="replace")).get("text", [""])[0]
        try:
            pieces = [source_tag + line for line in source.encode(text.splitlines(), out_type=str)]
            results = translator.translate_batch(pieces, target_prefix=[target_tag] * len(pieces), beam_size=4, length_penalty=0.6,
                                                 max_batch_size=64)
            self.answer(200, text, "\n".join(target.decode([result.hypotheses[0][len(target_tag):] for result in results])))
        except (RuntimeError, ValueError) as error:  # such as a line of more tokens than the model has positions
            self.answer(400, text, str(error))

server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Page)
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
