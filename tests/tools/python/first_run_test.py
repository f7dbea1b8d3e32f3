"""The sentence that launch/quickstart ends with."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

from pyhadal import first_run
from pyhadal.refusal import Refusal


class FirstRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_of(self, name, losses, gradients):
        """A run with two encoder sublayers, and gradients at its last step."""
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        events = [{"event": "run", "encoder_sublayers": 2}]
        events += [{"event": "step", "step": step, "nll": loss} for step, loss in enumerate(losses, 1)]
        events.append({"event": "depth", "step": len(losses), "parameter_gradient": gradients})
        Path(path, "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), "utf-8")
        return first_run.read_run(path, name)

    def test_the_command_takes_two_runs_and_their_names(self):
        self.run_of("Good", [5, 4], [1, 1, 0.9, 1])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(first_run.main([os.path.join(self.folder, "Good")] * 2 + ["A", "B"]), 0)
        self.assertIn("gets 90% with A and 90% with B.", printed.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            self.assertEqual(first_run.main(["gone"] * 2 + ["A", "B"]), 1)
        self.assertIn("first_run: gone: no such file", printed.getvalue())

    def test_values_that_are_not_finite_are_left_out(self):
        run = self.run_of("Good", [5, None, 4], [1, None, 1, 2])
        self.assertEqual((run.first_loss, run.last_loss, run.share), (5, 4.5, 0.5))
        with self.assertRaisesRegex(Refusal, "no steps with finite gradients"):
            self.run_of("Bad", [5, 4], [1, 1, "not finite", 1])

    def test_the_sentence_names_losses_and_the_gradient_that_vanished(self):
        good = self.run_of("Good", [5, 4] + [2] * 10, [1e-9, 1e-9, 0.25, 0.5, 0.4])
        bad = self.run_of("Bad", [6, 4] + [3.5] * 10, [1, 1, 2e-9, 1e-3, 1])
        self.assertEqual(first_run.sentence(good, bad),
                         "After 12 steps each, Good's loss went from 5.00 to 2.00 and Bad's loss went from 6.00 to 3.50 nats a "
                         "token; of the largest gradient in the decoder, its lowest sublayer gets 50% with Good and 2e-09 with "
                         "Bad: in Bad the lower layers get nothing to learn from.")

    def test_nothing_is_said_to_vanish_where_nothing_does(self):
        runs = [self.run_of(name, [5, 4], [1, 1, share, 1]) for name, share in (("A", 0.9), ("B", 0.002))]
        self.assertRegex(first_run.sentence(*runs), "gets 90% with A and 2e-03 with B\\.$")

    def test_runs_of_unlike_steps_are_not_compared(self):
        runs = [self.run_of(str(steps), [4] * steps, [1, 1, 1, 1]) for steps in (3, 4)]
        with self.assertRaisesRegex(Refusal, "3 has 3 steps and 4 4"):
            first_run.sentence(*runs)

    def test_a_run_without_gradients_is_refused(self):
        with self.assertRaisesRegex(Refusal, "gradients of each sublayer"):
            self.run_of("none", [4], None)


if __name__ == "__main__":
    unittest.main()
