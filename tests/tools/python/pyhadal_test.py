"""pyhadal's parts on small records: reading, tables, pictures, pages, and how the command line ends."""

import contextlib
import csv
import io
import json
import os
import re
import signal
import stat
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path
from unittest import mock

import numpy as np

import pyhadal
from pyhadal import plot
from pyhadal.__main__ import main as pyhadal_main
from pyhadal.command import run as run_command
from pyhadal.files import replace_whole
from pyhadal.packages import require
from pyhadal.page import markdown_page, render
from pyhadal.run import owner_state, parse_config
from pyhadal.table import Cell, Table, escape_latex, escape_markdown

SVG = "{http://www.w3.org/2000/svg}"


def make_run(folder, events, unfinished="", config=""):
    """A run directory with these events, and an unfinished line."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "metrics.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
        file.write(unfinished)
    Path(folder, "config.resolved.textproto").write_text(config, "utf-8")
    return folder


def texts(svg):
    """The texts of a picture, which must be well-formed XML."""
    return ["".join(element.itertext()).strip() for element in xml.fromstring(svg).iter(SVG + "text")]


STEPS = [{"event": "step", "step": s, "loss": 1.0 / 3 / s, "nll": None if s == 2 else 0.1 * s} for s in (1, 2, 3)]
DEPTH = [{"event": "depth", "step": s, "output": [1.0, None, "not finite", 4.0 * s]} for s in (1, 3)]


class RunTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.path = os.path.join(self.scratch.name, "first")

    def test_frames(self):
        events = [{"event": "run", "encoder_sublayers": 9}, {"event": "run", "encoder_sublayers": 2}, *STEPS, {"event": "validation", "step": 3, "nll": 2.5, "bleu": 7.0},
                  {"event": "sample", "step": 3, "text": "a"}, {"event": "diagnosis", "step": 2, "text": "d"}, {"event": "lost", "loss": None}, *DEPTH,
                  {"event": "depth", "step": 4, "output": [1.0]}]  # of another model
        run = pyhadal.Run(make_run(self.path, events))
        self.assertEqual(list(run.metrics["step"]), [1, 2, 3])
        self.assertEqual(list(run.metrics["loss"]), [event["loss"] for event in STEPS])  # the same bits
        self.assertEqual(list(run.metrics["nll"].isna()), [False, True, False])
        self.assertEqual(run.events("lost")["loss"].dtype, float)
        self.assertEqual(run.validations.to_dict("records"), [{"step": 3, "nll": 2.5, "bleu": 7.0}])
        self.assertEqual((list(run.samples["text"]), list(run.diagnoses["text"]), len(run.warnings)), (["a"], ["d"], 0))
        self.assertEqual(list(run.warnings), ["step", "text"])
        with mock.patch("pyhadal.plot.curve_with_maps", return_value="") as drawn:
            run.plot("nll")
        line, dots = drawn.call_args[0][0]
        self.assertEqual((line.x, line.y[2], dots.x, dots.y), ((1, 2, 3), STEPS[2]["nll"], [3], [2.5]))
        steps, values = run.depth("output")
        self.assertEqual((steps, run.encoder_sublayers), ([1, 3], 2))
        np.testing.assert_array_equal(values, [[1, np.nan, np.inf, 4], [1, np.nan, np.inf, 12]])
        self.assertEqual(run.depth("active")[1].size, 0)

    def test_an_unfinished_last_line_is_skipped_and_damage_inside_is_named(self):
        make_run(self.path, STEPS, unfinished='7\n{"event":"step","st')  # 7 is no event
        self.assertEqual(len(pyhadal.read_metrics(self.path)), 3)
        self.assertEqual(len(pyhadal.Run(os.path.join(self.path, "metrics.jsonl")).metrics), 3)
        make_run(self.path, STEPS, unfinished='{"event":"st\n{"event":"step","step":4}\n')
        with self.assertRaisesRegex(pyhadal.Refusal, "metrics.jsonl:4: not a JSON object; .*: remove line 4") as caught:
            pyhadal.read_metrics(self.path)
        self.assertEqual(caught.exception.exit_code, 3)
        with self.assertRaisesRegex(pyhadal.Refusal, "is .*gone a run directory"):
            pyhadal.Run(os.path.join(self.scratch.name, "gone"))

    def test_config(self):
        text = '''# a comment { "
            model { method: deepnorm encoder_layers: 6 residual { encoder { gain: 0.5 } } tied: t }
            data { train: "a \\"b\\" # {" train: "" # of two parts
            'c' } stop { steps: 0xA } seed: 017'''
        wanted = {"model.method": "deepnorm", "model.encoder_layers": 6, "model.residual.encoder.gain": 0.5, "model.tied": True,
                  "data.train": ['a "b" # {', "c"], "stop.steps": 10, "seed": 15}
        self.assertEqual(parse_config(text), wanted)
        self.assertEqual(parse_config(r'a: "\303\274" b: [1, 2] b: 3 c <d: 1>'), {"a": "ü", "b": [1, 2, 3], "c.d": 1})
        with self.assertRaisesRegex(ValueError, "model has no end"):
            parse_config("model { heads: 1")
        self.assertEqual(pyhadal.Run(make_run(self.path, STEPS, config=text)).config, wanted)

    def test_checkpoints(self):
        run = pyhadal.Run(make_run(self.path, STEPS))
        self.assertEqual((len(run.checkpoints), list(run.samples), list(run.diagnoses)), (0, ["step", "text"], ["step", "text"]))
        for name in ("step_00000002", "step_00000010", "step_00000003.tmp.1-2-3"):
            os.makedirs(os.path.join(self.path, "checkpoints", name))
        os.symlink("step_00000010", os.path.join(self.path, "checkpoints", "latest"))
        Path(self.path, "checkpoints", "best").write_text("step_00000002", "utf-8")
        rows = pyhadal.Run(self.path).checkpoints[["step", "latest", "best"]].values.tolist()
        self.assertEqual(rows, [[2, False, True], [10, True, False]])
        owner = Path(self.path, "checkpoints", "attempt")
        here = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
        for place, change, state in (("elsewhere", 2**33, "running"), ("elsewhere", 0, "lost"), (here, 2**33, "")):  # here: this pid of another process
            owner.write_text(f"attempt\nhost\n{place}\n{os.getpid()} 1\nsince\n0000000017\n")
            os.utime(owner, (change, change))
            self.assertEqual(owner_state(self.path), state)
        owner.write_text("attempt\nhost\nelsewhere\n1 1\nsince\n0000000017\n")
        os.utime(owner, (1000, 1000))
        for seconds, state in ((59, "running"), (61, "lost")):
            with mock.patch("time.time", return_value=1000 + seconds):
                self.assertEqual(owner_state(self.path), state)
        start = {"event": "run", "total_steps": 12}
        for heartbeats, events, status in (
                ("0000000017", [start], ("running", 3, 12, "")), ("0000000017", [start, {"event": "finish", "reason": "all steps done"}], ("running", 3, 12, "")),
                ("ended", [start], ("failed", 3, 12, "")), ("ended", [start, {"event": "finish", "reason": "stopped on a signal"}], ("saved", 3, 12, "stopped on a signal"))):
            owner.write_text(f"attempt\nhost\nelsewhere\n1 1\nsince\n{heartbeats}\n")
            os.utime(owner, (2**33, 2**33))
            run = pyhadal.Run(make_run(self.path, [{"event": "run", "total_steps": 9}, *STEPS, {"event": "finish", "reason": "stopped on a signal"}, *events]))
            self.assertEqual(run.status(), pyhadal.Status(*status))
        self.assertEqual(pyhadal.Run(make_run(self.path, [])).status(), pyhadal.Status("not started", 0, 0))
        with mock.patch("pyhadal.cluster.find_job", return_value=("7", "REQUEUED")):
            self.assertEqual((run.status().state, run.status().job), ("queued", "7"))


class TableTest(unittest.TestCase):
    def setUp(self):
        self.table = Table(["run", "nll"], title="T", note="a_note")
        self.table.add("a|b <i>_x", Cell("0.33", 1 / 3, best=True, mark="good"))
        self.table.add("二\n行", "-")

    def test_text(self):
        self.assertEqual(self.table.to_text(), "run         nll\na|b <i>_x  0.33\n二 行         -\n")
        accented = Table(["run", "nll"])
        accented.add("\u0301".join("eee"), "1")  # three columns wide
        accented.add("Ａ", "1")  # two
        self.assertEqual(accented.to_text(), "run  nll\ne\u0301e\u0301e    1\nＡ     1\n")

    def test_markdown_shows_the_text_as_it_is(self):
        self.assertEqual(self.table.to_markdown(),
                         "| run | nll |\n|---|---:|\n| a\\|b &lt;i&gt;\\_x | **0.33** |\n| 二 行 | - |\n")
        self.assertEqual(escape_markdown("[a](b) `c`\x1b\u2028\u2029"), "\\[a\\](b) \\`c\\`   ")

    def test_html_is_escaped_and_marked(self):
        rows = list(xml.fromstring(self.table.to_html()).iter("tr"))
        self.assertEqual(["".join(row.itertext()) for row in rows], ["runnll", "a|b <i>_x0.33", "二\n行-"])
        self.assertEqual(rows[1][1].get("class"), "good")
        self.assertEqual(rows[1][1][0].tag, "b")

    def test_latex(self):
        self.assertTrue(self.table.to_latex().startswith("\\begin{tabular}{lr}\n"))
        self.assertIn("a\\textbar{}b \\textless{}i\\textgreater{}\\_x & \\textbf{0.33} \\\\\n", self.table.to_latex())
        self.assertEqual(escape_latex("50% of $x_1$ {~} \\"), "50\\% of \\$x\\_1\\$ \\{\\textasciitilde{}\\} \\textbackslash{}")

    def test_a_summarys_table_is_read_whole(self):
        summary = {"columns": ["a"], "rows": [["1.3"]], "values": [[1.25]], "title": "T", "note": "n", "run": "r"}
        self.assertEqual(Table.from_json(summary), Table(["a"], [[Cell("1.3", 1.25)]], "T", "n", "r"))

    def test_csv_has_all_digits(self):
        rows = list(csv.reader(io.StringIO(self.table.to_csv())))
        self.assertEqual(rows, [["run", "nll"], ["a|b <i>_x", repr(1 / 3)], ["二\n行", "-"]])
        self.assertEqual(float(rows[1][1]), 1 / 3)


class PlotTest(unittest.TestCase):
    def test_axes_have_titles_and_names_are_escaped(self):
        svg = plot.lines([plot.Series("_a$<$b", [1, 2], [3, 4]), plot.Series("c", [1, 2], [3, np.nan], 1)], "Loss $<$", "step", "nats")
        self.assertLessEqual({"Loss $<$", "step", "nats", "\u200b_a$<$b", "c (1 not finite)"}, set(texts(svg)))
        self.assertIn("var(--ink", svg)
        self.assertNotIn("var(", plot.standalone(svg, dark=True))
        self.assertIn("#dddddd", plot.standalone(svg, dark=True))
        self.assertIn("#333333", plot.standalone(svg))

    def test_bands_and_logarithmic_axes(self):
        axes = mock.MagicMock()
        plot.draw_series(axes, [plot.Series("a", [1, 2], [3, 4], low=[2, 3], high=[4, 5])])
        self.assertEqual(axes.fill_between.call_args[0][1:], ([2, 3], [4, 5]))
        plot.draw_series(axes, [plot.Series("a", [1], [2], len(plot.COLOURS))])  # a point is seen, and runs beyond the colours have other lines
        self.assertEqual((axes.plot.call_args[0][2], axes.plot.call_args[1]["color"], axes.plot.call_args[1]["marker"]), ("--", plot.COLOURS[0], "o"))
        plot.draw_series(axes, [plot.Series("a", [1, 2], [3, 4], dots=True)])
        self.assertEqual(axes.plot.call_args[0][2], "o")
        with mock.patch("matplotlib.axes.Axes.set_yscale") as scale:
            plot.lines([plot.Series("a", [1, 2], [0, -1])], "t", "x", "y", logarithmic=True)
            scale.assert_not_called()
            plot.lines([plot.Series("a", [1, 2], [0, 1e-3])], "t", "x", "y", logarithmic=True)
            scale.assert_called_with("log")

    def test_axes_fit_their_numbers(self):
        with mock.patch("pyhadal.plot.to_svg", lambda figure: figure):
            axes, = plot.lines([plot.Series("a", [1, 2], [-1, 2])], "t", "x", "y", from_zero=True).axes
            self.assertEqual((axes.get_ylim(), axes.get_legend()), ((-1, 2.1), None))
            for x, whole in ((2, True), (1.5, False)):
                axes, = plot.lines([plot.Series("a", [1, x], [1, 2]), plot.Series("b", [1, x], [1, 2])], "t", "x", "y").axes
                self.assertEqual((all(tick % 1 == 0 for tick in axes.get_xticks()), len(axes.get_legend().get_texts())), (whole, 2))
            self.assertEqual(plot.square([[1, 2], [3, 4]], "t", "unit", "layer").axes[0].images[0].origin, "lower")
            with mock.patch("matplotlib.figure.Figure.colorbar") as scale:
                figure = plot.depth_maps([plot.DepthMap("a", [1], np.array([[1e-30, 1.0]]))] * 4, "t", "unit")
            self.assertEqual([axes.axison for axes in figure.axes], [True] * 4 + [False] * 2)
            self.assertEqual((scale.call_args[1]["extend"], figure.get_figheight()), ("min", 6.7))
            with mock.patch("pyhadal.plot._draw_maps") as maps:
                plot.curve_with_maps([], "nll", [None], "similarity")
            self.assertEqual(maps.call_args[0][2:5], plot.DEPTH_SERIES["similarity"])
        norm = plot._common_norm([plot.DepthMap("a", [1], np.array([[0.5, 0.5]]))], False)
        self.assertEqual((norm.vmin, norm.vmax), (0, 1))

    def test_every_metric_and_series_has_a_unit(self):
        for title, unit in [*plot.METRICS.values(), *(series[:2] for series in plot.DEPTH_SERIES.values())]:
            self.assertTrue(title and unit)
        self.assertEqual(plot.metric_titles("valid/nll"), ("Loss without label smoothing, validation", "nats per target token"))
        self.assertEqual(plot.metric_titles("valid/bleu")[0], plot.METRICS["bleu"][0])
        self.assertEqual(plot.metric_titles("other"), ("other", "other"))

    def test_a_number_from_zero_has_a_fitting_axis(self):  # one BLEU point: not an axis from -1 to 1
        shown = texts(plot.lines([plot.Series("a", [10], [28.9], dots=True)], "BLEU", "step", "BLEU", from_zero=True))
        ticks = [float(text) for text in shown if re.fullmatch(r"[−-]?[\d.]+", text.replace("−", "-"))]
        self.assertIn(0, ticks)
        self.assertGreaterEqual(max(ticks), 25)
        self.assertFalse(any("−" in text for text in shown))

    def test_thinned_lines_keep_spikes_and_gaps(self):
        x, y = np.arange(100000.0), np.zeros(100000)
        y[31234], y[50001], y[70000] = 9, -9, np.nan
        thin_x, thin_y = plot.thin(x, y)
        self.assertLess(len(thin_x), 1600)
        self.assertEqual((np.nanmax(thin_y), np.nanmin(thin_y), int(np.isnan(thin_y).sum())), (9, -9, 1))
        self.assertEqual(thin_x[np.isnan(thin_y)][0], 70000)
        self.assertTrue((np.diff(thin_x) > 0).all())

    def test_depth_maps_share_a_scale(self):
        maps = [plot.DepthMap("$a$", [1, 2], np.array([[1e-3, 1.0], [np.nan, np.inf]]), 1), plot.DepthMap("b", [1], np.ones((1, 2)))]
        svg = plot.depth_maps(maps, "Output", "‖x‖")
        self.assertLessEqual({"Output", "‖x‖", "$a$", "b", "recorded step", "sublayer, encoder then decoder"}, set(texts(svg)))
        self.assertEqual(len(list(xml.fromstring(svg).iter(SVG + "image"))), 3)  # both maps and the scale
        self.assertEqual(plot._common_norm([plot.DepthMap("a", [1], np.array([[1e-30, 1.0]]))], True).vmin, 1e-10)
        axes, one = mock.MagicMock(), plot.DepthMap("a", [10, 20, 3000], np.array([[1.0, np.nan], [1, np.inf], [1, 1]]), 1)
        plot._draw_map(axes, one, plot._common_norm([one], True))
        pixels = axes.imshow.call_args[0][0]  # upwards the sublayers, to the right the records; blank, and red
        self.assertEqual((pixels.shape, pixels[1, 0, 3], tuple(pixels[1, 1]), axes.axhline.call_args[0]), ((2, 3, 4), 0, (0.9, 0.1, 0.1, 1), (0.5,)))
        self.assertEqual(axes.set_xticks.call_args[0][1], ["10", "20", "3,000"])

    def test_bars_and_timelines_name_what_they_draw(self):
        svg = plot.stacked_bars(["$s$", "s1"], ["forward", "gain"], ["#123456", "#654321"], [[2, -1], [3, 0]], "Where", "ms", ["1 ms"])
        self.assertLessEqual({"Where", "ms", "$s$", "s1", "forward", "gain", "1 ms"}, set(texts(svg)))
        svg = plot.stacked_bars(["a", "b", "c"], ["forward"], ["#123456"], [[1]] * 3, "Where", "ms", most=2)
        self.assertLessEqual({"Where (2 of 3)", "a", "c"}, set(texts(svg)))
        rows = [(f"rank {i}", [(0, 1e-3, 0, "F0"), (1e-3, 2e-3, 1, "")]) for i in range(100)]
        shown = texts(plot.timeline([("forward", "#123456"), ("wait", "#654321"), ("unused", "#000000")], rows, "A step"))
        self.assertLessEqual({"A step (64 of 100 ranks)", "rank 0", "rank 99", "forward", "wait"}, set(shown))
        self.assertNotIn("unused", shown)
        with mock.patch("matplotlib.axes.Axes.broken_barh") as bars, mock.patch("matplotlib.axes.Axes.text") as label:
            plot.timeline([("forward", "#123456")], [("rank 0", [(1e-3, 3e-3, 0, "F0")])], "A step")
        self.assertEqual(bars.call_args[0], ([(1, 2)], (-0.4, 0.8)))  # begin and length, in milliseconds
        self.assertEqual(label.call_args[0], (2, 0, "F0"))
        with mock.patch("matplotlib.axes.Axes.barh") as bars, mock.patch("matplotlib.axes.Axes.legend"):
            plot.stacked_bars(["a"], ["forward", "gain", "more", "wait"], ["#123456"] * 4, [[2, -1, -3, 4]], "Where", "ms")
        self.assertEqual([call[1]["left"][0] for call in bars.call_args_list], [0, 0, -1, 2])  # gains to the left

    def test_the_same_numbers_give_the_same_bytes(self):
        draw = lambda: plot.lines([plot.Series("a", [1, 2], [3, 4])], "t", "x", "y")
        self.assertEqual(draw(), draw())


class PageTest(unittest.TestCase):
    def test_a_page_follows_the_colour_scheme_and_wraps(self):
        page = render("page.html", title="a <b>")
        self.assertIn("<h1>a &lt;b&gt;</h1>", page)
        self.assertIn("prefers-color-scheme: dark", page)
        self.assertIn("overflow-wrap: anywhere", page)
        self.assertNotIn("<script", page)

    def test_markdown(self):
        self.assertEqual(markdown_page("r_1", [Table(["a"], title="T", note="n*")], ["x*"]), "# r\\_1\n\n- x\\*\n\n## T\n\n| a |\n|---|\n\nn\\*\n")


class CommandTest(unittest.TestCase):
    def start(self, *words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = pyhadal_main(words)
        return code, said.getvalue()

    def test_errors_are_one_line(self):
        with tempfile.TemporaryDirectory() as scratch:
            run = make_run(os.path.join(scratch, "run"), STEPS)
            svg = os.path.join(scratch, "x.svg")
            twin = make_run(os.path.join(scratch, "twin", "run"), STEPS)
            Path(svg).touch()  # an empty file is nobody's
            self.assertEqual(self.start("curve", run, twin, "--svg", svg), (0, ""))
            self.assertEqual(os.stat(svg).st_mode, os.stat(os.path.join(run, "metrics.jsonl")).st_mode, "as open() makes files")
            for picture in (Path(svg).read_text("utf-8"), pyhadal.Run(run).plot("loss", pyhadal.Run(twin)).svg):
                self.assertLessEqual({run, twin}, set(texts(picture.partition("?>")[2])))
            pyhadal.Run(run).plot("nll").save(svg)
            self.assertIn(plot.METRICS["nll"][0], Path(svg).read_text("utf-8"))
            with self.assertRaisesRegex(pyhadal.Refusal, "x.png: pictures are SVG"):
                pyhadal.Picture("<svg/>").save(os.path.join(scratch, "x.png"))
            code, said = self.start("curve", run, "--svg", svg, "--metric", "losss")
            self.assertEqual((code, said), (2, f"hadal curve: {run}/metrics.jsonl: no line has 'losss'; available: loss, nll\n"))
            code, said = self.start("curve", run, "--svg", os.path.join(scratch, "none", "x.svg"))
            self.assertEqual((code, said.count("\n")), (1, 1))
            self.assertIn("none", said)
            self.assertEqual(self.start("nonsense")[0], 2)
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                self.assertEqual(pyhadal_main(["--help"]), 0)
            self.assertIn("Commands: make-corpus, report", shown.getvalue())
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as caught:
                pyhadal_main(["curve", run, "--metrics", "nll"])
            self.assertEqual(caught.exception.code, 2)
            self.assertIn("unrecognized arguments: --metrics nll; did you mean --metric?\n", said.getvalue())

    def test_each_kind_of_error_has_its_code_and_words(self):
        def fail(error):
            raise error

        for error, code, words in ((pyhadal.Refusal("a\x1b[1mb", 3), 3, "a\\x1b[1mb"), (OSError(28, "full", "f.tmp.7/x"), 1, "f: full"),
                                   (MemoryError(), 1, "out of memory"),
                                   (ImportError("no x"), 2, f"no x (of {sys.executable}); name another Python in HADAL_PYTHON"),
                                   (pyhadal.Refusal("a" * 2000), 2, "a" * 100 + " … (cut)"), (BrokenPipeError(), 1, None)):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(run_command("it", lambda: fail(error)), code)
            self.assertEqual(said.getvalue(), "" if words is None else f"hadal it: {words}\n")
        with mock.patch("importlib.util.find_spec", return_value=None), mock.patch("sys.prefix", "/venv"):
            with self.assertRaisesRegex(pyhadal.Refusal, f"install with: {re.escape(sys.executable)} -m pip install pandas;"):  # Debian's would not be seen
                require("pandas")
        with mock.patch("importlib.util.find_spec", return_value=None), mock.patch("sys.prefix", "/usr"):
            for modules, words in ((["pandas", "numpy"], "packages are missing for .*: pandas, numpy; install with: apt-get install "
                                    "python3-pandas python3-numpy, or .* pip install pandas numpy;"),
                                   (["lingua"], "package is missing for .*: lingua; install with: [^ ]* -m pip install lingua-language-detector;")):
                with self.assertRaisesRegex(pyhadal.Refusal, words):
                    require(*modules)

    def test_a_signal_ends_the_work_in_order_and_a_second_one_does_not_interrupt_that(self):
        def work():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGINT)
                cleaned.append(True)

        cleaned = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        with self.assertRaises(SystemExit) as caught:
            run_command("it", work)
        self.assertEqual((caught.exception.code, cleaned), (128 + signal.SIGTERM, [True]))
        self.assertEqual(run_command("it", lambda: signal.raise_signal(signal.SIGHUP)), 0, "ignored, as under nohup")

    def test_nothing_is_left_of_a_file_that_is_not_whole(self):
        self.addCleanup(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL))
        with tempfile.TemporaryDirectory() as scratch:
            for call, effect, error in (("os.fsync", lambda _: signal.raise_signal(signal.SIGTERM), SystemExit), ("os.replace", OSError, OSError)):
                with mock.patch(call, side_effect=effect), self.assertRaises(error):
                    replace_whole(os.path.join(scratch, "x"), "text")
                self.assertEqual(os.listdir(scratch), [])
        self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_a_pipe_is_not_replaced(self):
        with tempfile.TemporaryDirectory() as scratch:
            run, pipe = make_run(os.path.join(scratch, "run"), STEPS), os.path.join(scratch, "pipe")
            os.mkfifo(pipe)
            code, said = self.start("curve", run, "--svg", pipe)
            self.assertEqual(code, 2)
            self.assertIn(f"cannot replace {pipe}", said)
            self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_similarity_is_drawn(self):
        with tempfile.TemporaryDirectory() as scratch:
            measured, page = os.path.join(scratch, "alike.json"), os.path.join(scratch, "alike.html")
            with open(measured, "w", encoding="utf-8") as file:
                json.dump({"checkpoint": "run", "data": "valid", "source_rows": 3, "target_rows": 4, "encoder": [[1, 0.5], [0.5, 1]],
                           "decoder": [[1, 0.25], [0.25, 1]]}, file)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(self.start("inspect similarity", measured, page), (0, ""))
            for text in ("Encoder", "Decoder", "mean cosine of a token"):
                self.assertIn(text, Path(page).read_text("utf-8"))


if __name__ == "__main__":
    unittest.main()
