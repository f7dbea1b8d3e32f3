"""TensorBoard, by its data server (the default) and without, shows what metrics.jsonl has, also of a run that goes back while it watches."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

HADAL = os.environ["HADAL"]
CONFIG = """data { train: "data/train" validation: "data/valid" }
model { encoder_layers: 1 decoder_layers: 1 d_model: 16 d_ff: 32 heads: 2 max_positions: 128 }
batch { micro_batches: 1 source_tokens: 128 target_tokens: 128 }
pipeline { threads: 1 }
learning_rate { peak: 1e-3 warmup_updates: 4 }
validation { every_steps: 5 }
checkpoint { every_steps: 10 keep_last: 0 }
"""


class TensorBoardTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = Path(directory.name)
        (self.folder / "small.textproto").write_text(CONFIG, "utf-8")
        self.hadal("make-corpus", "--out", "text", "--pairs", "300", "--valid", "20", "--test", "20", "--seed", "3")
        self.hadal("prepare", "--train", "text/train.en", "text/train.de", "--valid", "text/valid.en", "text/valid.de", "--out", "data",
                   "--vocab-size", "200")

    def hadal(self, *words: str) -> None:
        done = subprocess.run([HADAL, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def train(self, steps: int, *more: str) -> None:
        self.hadal("train", "small.textproto", "--set", f"stop.steps={steps}", *more)

    def serve(self, *options: str) -> str:
        """Starts TensorBoard on a free port; returns its address."""
        server = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", self.folder / "run/tb", "--host", "127.0.0.1",
                                   "--port", "0", "--reload_interval", "1", *options], stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (server.kill(), server.wait(), server.stderr.close()))
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                return found.group()
        raise AssertionError("TensorBoard did not start")

    def shown(self, url: str, tag: str) -> list[int]:
        """The steps of a tag's points; none yet: []."""
        query = urllib.parse.urlencode({"run": ".", "tag": tag})
        try:
            with urllib.request.urlopen(f"{url}data/plugin/scalars/scalars?{query}") as answer:
                return [step for _, step, _ in json.load(answer)]
        except urllib.error.HTTPError:
            return []

    def recorded(self, event: str) -> list[int]:
        lines = map(json.loads, (self.folder / "run/metrics.jsonl").read_text("utf-8").splitlines())
        return [line["step"] for line in lines if line["event"] == event]

    def check(self, url: str) -> None:
        """TensorBoard reads now and then: waits until it has read as far as the run has come."""
        steps, since = self.recorded("step"), time.monotonic()
        while self.shown(url, "train/loss") != steps and time.monotonic() < since + 120:
            time.sleep(0.1)
        self.assertEqual(self.shown(url, "train/loss"), steps)
        self.assertEqual(self.shown(url, "valid/nll"), self.recorded("validation"))

    def test_a_run_that_goes_back(self) -> None:
        self.train(40)
        servers = [self.serve(), self.serve("--load_fast", "false")]
        for url in servers:
            self.check(url)
        self.assertIn(20, self.recorded("validation"))
        self.train(25, "--resume", "run/checkpoints/step_00000010", "--accept-changes", "--set", "validation.every_steps=1000")
        self.assertNotIn(20, self.recorded("validation"))
        for url in [*servers, self.serve()]:
            self.check(url)
        loaded = EventAccumulator(str(self.folder / "run/tb")).Reload()
        self.assertEqual([point.step for point in loaded.Scalars("train/loss")], self.recorded("step"))
        self.assertEqual([point.step for point in loaded.Scalars("valid/nll")], self.recorded("validation"))


if __name__ == "__main__":
    unittest.main()
