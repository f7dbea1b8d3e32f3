"""`hadal curve` as text: reading a metric, the plot, errors; with the standard library alone."""

import os
import subprocess
import sys
import tempfile
import unittest
from math import inf, nan
from pathlib import Path
from unittest import mock

from pyhadal.refusal import Refusal
from pyhadal.run import Run
from pyhadal.text_plot import Curve, Style, human, plot_curves, shows_colours, shows_unicode

HADAL = os.environ["HADAL"]
RUN = """{"event":"run","first_step":1}
{"event":"step","step":0,"loss":4.5,"skipped":true}
{"event":"step","step":1,"loss":null}
{"event":"validation","step":2,"nll":3.5}
{"event":"step","step":2,"loss":2.5}
{"event":"step","step":3,"lo"""
SMALL = Style(10, 4)
FALLS, FLAT = Curve("a", [(0, 4), (9, 1)]), Curve("b", [(0, 4), (9, 4)])


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_path = os.path.join(folder.name, "deep")
        os.mkdir(self.run_path)

    def write(self, text):
        Path(self.run_path, "metrics.jsonl").write_text(text, "utf-8")

    def hadal(self, *words, **variables):
        environment = {**os.environ, "HADAL_PYTHON": sys.executable, **variables}
        return subprocess.run([HADAL, "curve", *words], capture_output=True, check=False, env=environment, encoding="utf-8")

    def test_reads_steps_and_validations(self):
        self.write(RUN)
        self.assertEqual(str(Run(self.run_path).points("loss")), "[(0, 4.5), (1, nan), (2, 2.5)]")
        self.assertEqual(Run(self.run_path + "/metrics.jsonl").points("valid/nll"), [(2, 3.5)])

    def test_bad_files_and_metrics_get_an_error_with_the_name(self):
        with self.assertRaisesRegex(Refusal, "/nonexistent/metrics.jsonl: no such file"):
            Run("/nonexistent").points("loss")
        for text, metric, error in ((RUN, "los", "no line has 'los'; available: loss, valid/nll"), ("", "loss", "has no step yet"),
                                    ('{"event":"run"}\nnonsense\n{}\n', "loss", "metrics.jsonl:2: not a JSON object"),
                                    ('{"event":"step","step":null,"loss":1}\n', "step", "available: loss")):
            self.write(text)
            with self.assertRaisesRegex(Refusal, error):
                Run(self.run_path).points(metric)

    def test_plots_under_the_directorys_name(self):
        self.write(RUN)
        done = self.hadal(self.run_path + "/", "--width", "20", "--height", "4", LC_ALL="C.UTF-8")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("deep 2.500 (1 point not finite)\n", done.stdout)
        self.assertIn("4.50 ┤", done.stdout)
        self.assertTrue(self.hadal(self.run_path, HADAL_ASCII="1").stdout.isascii())
        for locale, shows in (("C", True), ("de_DE.utf8", True), ("de_DE.ISO-8859-1", False)):
            with mock.patch.dict(os.environ, LC_ALL=locale, HADAL_ASCII=""):
                self.assertEqual(shows_unicode(), shows, locale)
        with mock.patch.dict(os.environ, LC_ALL="", LC_CTYPE="de_DE.ISO-8859-1", LANG="C.UTF-8", HADAL_ASCII=""):
            self.assertFalse(shows_unicode(), "LC_CTYPE comes before LANG")
        for columns, variables, shows in ((80, {}, True), (80, {"NO_COLOR": "1"}, False), (80, {"TERM": "dumb"}, False),
                                          (0, {"HADAL_COLUMNS": "70"}, True), (0, {"HADAL_COLUMNS": ""}, False)):
            variables = {"TERM": "xterm", "NO_COLOR": "", **variables}  # of any machine
            with mock.patch("os.get_terminal_size", return_value=os.terminal_size((columns, 24))), mock.patch.dict(os.environ, variables):
                self.assertEqual(shows_colours(), shows, variables)

    def test_bad_usage(self):
        self.write(RUN)
        for words in ([], ["/nonexistent"], [self.run_path, "--svg", "x", "--depth", "nonsense"], [self.run_path, "--dark"],
                      [self.run_path, "--width", "7"], [self.run_path, "--label", "a", "b"]):
            self.assertEqual(self.hadal(*words).returncode, 2, words)


class Plot(unittest.TestCase):
    def test_a_falling_curve(self):
        self.assertEqual(plot_curves([Curve("loss", [(0, 4), (3, 3), (6, 2), (9, 1)])], SMALL),
                         "4.00 ┤━━┓\n"
                         "3.00 ┤  ┗━━┓\n"
                         "2.00 ┤     ┗━━┓\n"
                         "1.00 ┤        ┗━\n"
                         "     └──────────\n"
                         "      0  step  9\n"
                         "      ━━ loss 1.000\n")
        self.assertIn("   0 ┤\n", plot_curves([Curve("means", [(0, 4), (0.4, 0), (9, 1)])], SMALL), "a column shows the mean of its points")

    def test_a_rising_curve(self):
        self.assertEqual(plot_curves([Curve("bleu", [(0, 1), (3, 2), (6, 3), (9, 4)])], SMALL).splitlines()[:4],
                         ["4.00 ┤        ┏━", "3.00 ┤     ┏━━┛", "2.00 ┤  ┏━━┛", "1.00 ┤━━┛"])

    def test_the_first_curve_lies_on_top_of_the_second(self):
        plot = plot_curves([FALLS, FLAT], SMALL)
        self.assertIn("4.00 ┤━━┓───────\n", plot)
        self.assertIn("━━ a 1.000   ── b 4.000", plot)

    def test_what_is_not_finite_is_left_out_and_counted(self):
        plot = plot_curves([Curve("run", [(0, 4), (9, 1), (10, nan), (11, inf)])], SMALL)
        self.assertIn("run 1.000 (2 points not finite)", plot)
        self.assertNotIn("nan", plot)
        for curves in ([Curve("run", [(0, nan)])], []):
            self.assertEqual(plot_curves(curves, SMALL), "nothing to plot: no finite value yet\n")

    def test_a_diverging_curve_does_not_flatten_the_others(self):
        diverges = Curve("b", [(0, 2), (9, 1e6)])
        self.assertIn("5.00 ┤", plot_curves([FALLS, diverges], SMALL))
        self.assertIn("1.00e+06 ┤", plot_curves([diverges], SMALL))
        self.assertIn("1.00e+06 ┤", plot_curves([FLAT, diverges], SMALL), "none falls")

    def test_the_axis_has_the_steps_of_all_curves(self):
        plot = plot_curves([Curve("a", [(0, 4), (2000, 1)]), Curve("b", [(5, 4), (9, 1)])], SMALL)
        self.assertIn("\n      0 2,000\n", plot, "without its name, for which there is no room")

    def test_one_point_and_a_constant_have_a_frame(self):
        self.assertIn("━━ c 2.000", plot_curves([Curve("c", [(5, 2)])], SMALL))
        self.assertIn("━━ c 0", plot_curves([Curve("c", [(0, 0), (1, 0)])], SMALL))

    def test_ascii_and_colours(self):
        plot = plot_curves([FALLS, Curve("b", [(0, 1), (9, 4)])], Style(10, 4, unicode=False))
        self.assertTrue(plot.isascii())
        self.assertIn("** a 1.000   oo b 4.000", plot)
        self.assertIn("\033[31m──\033[0m b", plot_curves([FALLS, FLAT], Style(10, 4, color=True)))

    def test_numbers_have_their_digits_after_rounding(self):
        self.assertEqual([human(value, 4) for value in (9.9996, 12345.6, 1e6, -0.00123456, 4.9e-4)],
                         ["10.00", "12346", "1.00e+06", "-0.001235", "4.90e-04"])


if __name__ == "__main__":
    unittest.main()
