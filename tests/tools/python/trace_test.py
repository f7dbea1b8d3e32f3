"""pyhadal.trace: a step of a trace as a timeline, with the standard library alone."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from pyhadal.refusal import Refusal
from pyhadal.trace import read_timeline

HADAL = os.environ["HADAL"]
SMALL = """
data { train: "data/train" } model { encoder_layers: 1 decoder_layers: 1 d_model: 16 d_ff: 32 heads: 2 max_positions: 64 dropout: 0 }
batch { micro_batches: 2 source_tokens: 96 target_tokens: 96 } pipeline { threads: 1 } stop { steps: 4 }
"""


def event(category, begin, end, micro_batch=None, step=3, rank=0, name=None):
    """A slice, as the tracer writes it; times in seconds since the step's begin at second 50."""
    arguments = {"step": step} if micro_batch is None else {"step": step, "micro_batch": micro_batch}
    return {"ph": "X", "pid": rank, "tid": 1, "cat": category, "name": name or category, "ts": 1e6 * (50 + begin),
            "dur": 1e6 * (end - begin), "args": arguments}


class Timeline(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.path = folder.name, os.path.join(folder.name, "trace.json")

    def read(self, *events):
        lines = [json.dumps(each, separators=(",", ":")) for each in (event("step", 0, 3), *events)]
        Path(self.path).write_text('{"displayTimeUnit":"ms","otherData":{"first_step":3,"clock_error_us":2.000},\n"traceEvents":[\n'
                                   + ",\n".join(lines) + "\n]}\n", "utf-8")
        return read_timeline(self.path)

    def spans(self, *events):
        """ "LABEL KIND BEGIN-END", in milliseconds, of the last rank."""
        timeline = self.read(*events)
        return [f"{label} {timeline['kinds'][kind]} {1e3 * begin:.0f}-{1e3 * end:.0f}"
                for begin, end, kind, label in timeline["rows"][-1]["spans"]]

    def test_cuts_recomputation_out_of_its_backward(self):
        self.assertEqual(self.spans(event("forward", 0.5, 1, 0), event("recompute", 1.6, 1.8, 0), event("backward", 1.5, 2.5, 0)),
                         ["F0 forward 500-1000", "B0 backward 1500-1600", "R0 recompute 1600-1800", "B0 backward 1800-2500"])

    def test_leaves_nothing_of_a_backward_that_its_recomputations_fill(self):
        self.assertEqual(self.spans(event("recompute", 1, 1.5, 7), event("recompute", 1.5, 2, 7), event("backward", 1, 2, 7)),
                         ["R7 recompute 1000-1500", "R7 recompute 1500-2000"])

    def test_what_ends_a_step_is_one_kind_and_waiting_another(self):
        ends = ["sum tied gradients", "sum over replicas", "global norm", "optimizer", "gather over replicas", "share tied weights"]
        events = [event(category, i, i + 1) for i, category in enumerate(ends, 1)]
        self.assertEqual(self.spans(*events, event("wait until sends are received", 7, 8), event("send", 8, 9, 0), event("receive", 9, 10, 0),
                                    event("receive", 10, 11, 0, name="wait for activations 0"), event("backward weights", 11, 12, 1)),
                         [f" sums, norm, optimizer {i}000-{i + 1}000" for i in range(1, 7)]
                         + [" wait 7000-8000", " wait 10000-11000", "W1 backward weights 11000-12000"])

    def test_shows_the_middle_step_from_its_first_event_on(self):
        events = [part for step in (4, 5) for part in (event("step", 10 * step, 10 * step + 2, step=step),
                                                       event("forward", 10 * step + 1, 10 * step + 1.5, step, step))]
        timeline = self.read(*events)
        self.assertEqual((timeline["step"], timeline["clock_error_seconds"]), (4, 2e-6))
        self.assertAlmostEqual(timeline["end_seconds"], 1.5)
        self.assertEqual(self.spans(*events), ["F4 forward 1000-1500"])

    def test_a_row_is_a_rank_in_its_order(self):
        timeline = self.read(event("backward", 2, 3, 0, rank=1), event("forward", 0, 3.5, 0))
        self.assertEqual([row["name"] for row in timeline["rows"]], ["rank 0", "rank 1"])
        self.assertAlmostEqual(timeline["end_seconds"], 3.5)

    def test_refuses_what_is_no_trace(self):
        begin = '{"otherData":{"clock_error_us":0},\n"traceEvents":[\n'
        for text, code in (("", 2), (begin, 2), (begin + '{"ph":"X","cat":"step"},\n', 3), (begin + '{"ph":"X","cat":"step', 2),
                           ('{"ph":"X","cat":"step","args":{"step":7}}\n', 3)):
            Path(self.path).write_text(text, "utf-8")
            with self.assertRaises(Refusal, msg=text) as refused:
                read_timeline(self.path)
            self.assertEqual(refused.exception.exit_code, code, text)

    def test_reads_what_a_run_has_traced(self):
        Path(self.folder, "small.textproto").write_text(SMALL, "utf-8")
        Path(self.folder, "text").write_text("a b c\n" * 20, "utf-8")
        for words in ("prepare --train text text --out data --vocab-type word --vocab-size 0", "train small.textproto --run-dir run --trace steps=2-4"):
            done = subprocess.run([HADAL, *words.split()], cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        [traced] = Path(self.folder, "run", "trace").iterdir()
        timeline = read_timeline(traced)
        self.assertEqual((timeline["step"], len(timeline["rows"])), (3, 1))
        labels = [label for _, _, _, label in timeline["rows"][0]["spans"] if label]
        self.assertEqual(sorted(set(labels)), ["B0", "B1", "F0", "F1"])
        self.assertIn(5, [kind for _, _, kind, _ in timeline["rows"][0]["spans"]])


if __name__ == "__main__":
    unittest.main()
