#!/usr/bin/env python3
"""100 clients of examples/serve.py beside one that sends 2,000 lines: how long each waits, and how many are refused.

    tests/bench/serve_load.py [EXPORT]      # a folder of `hadal checkpoint export --format ctranslate2`; else a random 3L-3L model of width 192

Needs ctranslate2, sentencepiece, starlette and uvicorn. Each client sends one line as soon as its last answer is there, three times.
"""

import collections
import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path[:0] = [os.path.join(ROOT, "tools/python"), os.path.join(ROOT, "tests/tools/python")]


def random_export(folder):
    from hadal_torch.ctranslate2 import write_ctranslate2
    from hadal_torch.tokenizer import parse_vocabulary
    from random_models import plain_model, sentencepiece_model
    contents = sentencepiece_model()
    size = len(parse_vocabulary("vocabulary.model", contents).tokens)
    plain = plain_model(layers=(3, 3), d=192, hidden=768, heads=4, source_vocabulary=size, target_vocabulary=size, max_positions=512)
    plain.vocabularies = {"vocabulary.model": contents}
    write_ctranslate2(plain, folder)


def ask(port, lines, times):
    body = urllib.parse.urlencode({"text": "\n".join(lines)})
    connection = http.client.HTTPConnection("127.0.0.1", port)
    began = time.monotonic()
    connection.request("POST", "/", body, {"Content-Type": "application/x-www-form-urlencoded"})
    reply = connection.getresponse()
    reply.read()
    times.append((reply.status, time.monotonic() - began))
    connection.close()


def main():
    with tempfile.TemporaryDirectory() as folder:
        export = sys.argv[1] if len(sys.argv) > 1 else folder
        if export == folder:
            random_export(folder)
        server = subprocess.Popen([sys.executable, os.path.join(ROOT, "examples/serve.py"), export, "--port", "0"], stdout=subprocess.PIPE, text=True)
        try:
            port = int(server.stdout.readline().rstrip("/\n").rsplit(":", 1)[1])
            long_times, times = [], []
            threads = [threading.Thread(target=ask, args=(port, [f"Das ist Satz {i}." for i in range(2000)], long_times))]
            threads += [threading.Thread(target=lambda i=i: [ask(port, [f"Ein Satz von {i}."], times) for _ in range(3)]) for i in range(100)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            server.terminate()
            server.wait()
    for status, count in sorted(collections.Counter(status for status, _ in times).items()):
        seconds = sorted(time for code, time in times if code == status)
        print(f"{count} answers {status}: median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s")
    print(f"the long text: {long_times[0][0]} after {long_times[0][1]:.1f} s")


if __name__ == "__main__":
    main()
