"""`hadal report` and `hadal curve --svg` on recorded runs: the page's numbers are the summary's, and how the program starts Python."""

import html.parser
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path
from unittest import mock

import numpy as np

from pyhadal import program, report
from pyhadal.incarnations import slow_hosts
from pyhadal.plot import DepthMap
from pyhadal.report import _stage_bars, make_page, with_incarnations
from pyhadal.refusal import Refusal
from pyhadal.run import Run
from pyhadal.table import Cell, Table
from pyhadal_test import make_run, texts

HADAL = os.environ["HADAL"]
CONFIG = "batch { micro_batches: 8 } stop { steps: 6 } model { d_ff: 96 }"


def recorded_run(folder, stages=2, steps=6, smoothing=0.5, extra=(), frame_width=0):
    """A run directory as a training run writes it."""
    events = [{"event": "run", "model": "a model", "parameters": 12345, "ranks": stages, "stages": stages, "replicas": 1, "threads": 1,
               "encoder_sublayers": 2, "decoder_sublayers": 3, "frame_width": frame_width}]
    stage = {"forward": 0.6, "recompute": 0.2, "backward": 1.0, "wait": 0.125, "communication": 0.0625, "optimizer": 0.2,
             "checkpoint": 0.05, "core_wait": 0.5, "arena_bytes": 300 << 20, "held_bytes": 320 << 20, "peak_resident_bytes": 350 << 20}
    for step in range(1, steps + 1):
        nll = 6.5 - 0.25 * step / steps
        events.append({"event": "step", "step": step, "update": step, "loss": nll + smoothing, "nll": nll, "learning_rate": 1e-4 * step,
                       "gradient_norm": 1.5, "target_tokens": 1000, "tokens_per_second": 400 + step % 7, "step_seconds": 2.3375,
                       "elapsed_seconds": 2.34 * step, "stages": [stage] * stages if steps < 100 else []})
    events.append({"event": "validation", "step": steps, "nll": 6.2, "bleu": 12.5, "wer": 0.107})
    return make_run(folder, [*events, *extra, {"event": "finish", "reason": "all steps done"}], config=CONFIG)


class Tables(html.parser.HTMLParser):
    """The cells of a page's tables: [tables][rows][cells]."""

    def __init__(self, page):
        super().__init__()
        self.tables, self.cell = [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.cell = ""

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self.cell)
            self.cell = None


def pictures(page):
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


class ReportTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_an_elastic_job_has_a_row_a_start_and_names_the_host_that_slows_it(self):
        run = recorded_run(self.path("elastic"), stages=3)
        path = os.path.join(run, "metrics.jsonl")
        events = [json.loads(line) for line in Path(path).read_text().splitlines()]
        for event in events:
            if (slow := {2: 3.0, 4: 4.0, 5: 4.0, 6: 4.0}.get(event.get("step"))) and "stages" in event:
                event["stages"] = [event["stages"][0], {**event["stages"][0], "backward": slow}, event["stages"][0]]
        Path(path).write_text("".join(json.dumps(event) + "\n" for event in events))
        one = {"start": "2030-01-01T00:00:00+00:00", "hosts": [{"name": f"h{n}", "slots": 1} for n in (1, 2, 3)], "stages": 3, "replicas": 1,
               "chunks": 1, "first_step": 1, "last_step": 5, "saved_step": 3, "repeated_steps": 0, "detection_seconds": 11.5,
               "end": "crashed (exit code 205)"}
        two = {**one, "first_step": 4, "last_step": 6, "repeated_steps": 2, "restart_seconds": 2.25, "end": "exit code 0"}
        del two["detection_seconds"]
        never = {**{name: one[name] for name in ("start", "hosts", "stages", "replicas", "chunks")}, "end": "crashed (exit code 1)"}
        Path(run, "incarnations.jsonl").write_text("\n".join(json.dumps(line) for line in (one, never, two)) + '\n{"start"')
        summary = with_incarnations(program.summarize([run]))
        rows = next(table["rows"] for table in summary["tables"] if table["name"] == "incarnations")
        self.assertEqual([row[1:] for row in rows],
                         [["h1 h2 h3", "3 x 1 x 1", "1–5", "3", "", "0", "11.5", "crashed (exit code 205)"],
                          ["h1 h2 h3", "3 x 1 x 1", "none", "", "", "", "", "crashed (exit code 1)"],
                          ["h1 h2 h3", "3 x 1 x 1", "4–6", "3", "2.2", "2", "", "exit code 0"]])
        page = make_page(summary)
        self.assertIn("Detections and restarts took 14 s; 2 steps were repeated.", page)
        # 1.8 s of the others, 4.8 of h2 for a third of the ranks, which the others would do in 1.5 times theirs; in steps 1 to 3 1.37 times.
        self.assertEqual([(found["step"], found["text"][:55]) for found in summary["runs"][0]["diagnoses"]],
                         [(4, "host h2 slows the job by more than it gives: its stages")])
        grid = {**two, "hosts": [{"name": f"h{n}", "slots": 2} for n in (1, 2, 3)], "replicas": 2}  # a stage's replicas beside each other
        Path(run, "incarnations.jsonl").write_text(json.dumps(grid))
        self.assertEqual([found["text"][:7] for found in slow_hosts(Run(run))], ["host h2"])
        Path(run, "config.resolved.textproto").write_text('pipeline { placement: "stages_together" }')  # each host then has two stages
        self.assertEqual(slow_hosts(Run(run)), [])

    def test_every_table_is_the_summarys(self):
        recorded_run(self.path("one"), stages=1)
        recorded_run(self.path("two"), stages=2)
        summary = program.summarize([self.path("one"), self.path("two")])
        shown = Tables(page := make_page(summary)).tables
        self.assertIn("<h1>hadal report</h1>", page)
        wanted = [[table["columns"], *table["rows"]] for table in summary["tables"]]
        self.assertCountEqual([table["name"] for table in summary["tables"]],
                              ["runs", "parts", "scaling", "causes", "stages", "memory", "stages", "memory", "config"])
        self.assertCountEqual(shown, wanted)
        self.assertIn(["two", "2 x 1", "6", "6.250", "6.200 (step 6)", "BLEU 12.5 (step 6)", "2337.5", "428", "2.5", "0 (+0.0%)",
                       "all steps done"], [row for table in shown for row in table])
        with mock.patch("pyhadal.plot.stacked_bars") as drawn:
            _stage_bars(stages := next(Table.from_json(table) for table in summary["tables"] if table["name"] == "stages"))
        bars = dict(zip(drawn.call_args[0][1], drawn.call_args[0][3][0]))
        self.assertEqual(bars["optimizer"], stages.rows[0][stages.columns.index("optimizer (ms)")].value)
        for table in map(Table.from_json, summary["tables"]):
            self.assertIn(table.to_latex().splitlines()[2].split(" & ")[0], page)

    def test_every_picture_has_titles_of_axes_and_a_common_font(self):
        depth = [{"event": "depth", "step": step, "update": step, "model_update": 0.5 * step,
                  "update_ratio": [0.01 * step * (s + 1) for s in range(5)]} for step in (1, 2, 3)]
        recorded_run(self.path("one"), extra=depth)
        page = make_page(program.summarize([self.path("one")]))
        shown = [set(texts(svg)) for svg in pictures(page)]
        axes = [("Loss without label smoothing", "step", "nats per target token"), ("BLEU of the validation", "step", "BLEU, 0 to 100"),
                ("Loss with label smoothing", "step", "nats per target token"), ("Gradient norm", "step", "2-norm, nats per target token"),
                ("Learning rate", "step", "factor of the update"), ("Throughput", "step", "target tokens per second"),
                ("Change of the model since its first weights", "update", "‖ΔF‖, root mean square"),
                ("Size of the update", "recorded step", "‖ΔW‖ / ‖W‖ of one update"),
                ("Size of the update, over the depth", "sublayer, encoder then decoder", "‖ΔW‖ / ‖W‖ of one update"),
                ("Where each stage's step goes: one", "milliseconds of a step", "stage 1")]
        self.assertEqual(len(shown), len(axes))
        for picture, words in zip(shown, axes):
            self.assertLessEqual(set(words), picture)
        for svg in pictures(page):
            for element in xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
                self.assertIn("DejaVu Sans", xml.tostring(element, encoding="unicode"))

    def test_what_pictures_and_tables_are_drawn_of(self):
        rows = [{"name": name, "cores": cores, "causes": {"bubble": lost}, "lost_share": lost, "efficiency": 1 - lost}
                for name, cores, lost in (("a", 1, 0.0), ("b", 2, 0.25), ("c", 2, 0.5))]
        with mock.patch("pyhadal.plot.lines") as curve, mock.patch("pyhadal.plot.stacked_bars") as bars:
            list(report._scaling({"scaling": {"rows": rows}}))
        best, runs, ideal = curve.call_args[0][0]
        self.assertEqual([[*zip(one.x, one.y)] for one in (best, runs, ideal)],
                         [[(1, 100), (2, 75)], [(1, 100), (2, 75), (2, 50)], [(1, 100), (2, 100)]])
        self.assertEqual([one.dots for one in (best, runs, ideal)], [False, True, False])
        self.assertEqual((bars.call_args[0][3], bars.call_args[0][6][1]), ([[0], [25], [50]], "25.0% lost"))
        maps = [DepthMap("a", [1, 20], np.array([[1, 2], [np.nan, 4]])), DepthMap("b", [7], np.array([[5.0, 6]]))]
        self.assertEqual([(one.name, list(one.x), list(one.y)) for one in report._profiles(maps)],
                         [("a, step 20", [1], [4]), ("b, step 7", [0, 1], [5, 6])])
        self.assertEqual([(one.name, list(one.y)) for one in report._profiles(maps[:1])], [("step 1", [1, 2]), ("step 20", [4])])
        long = report._chosen(Table(["a"], [[Cell(str(row))] for row in range(100)]))
        self.assertEqual((len(long.rows), long.note, long.rows[-1][0].text), (64, " 64 of 100 rows.", "99"))
        self.assertEqual(report._chosen(Table(["a"], [[Cell("0")]])).note, "")
        failed = {"name": "r", "failure": "why", "diagnoses": [{"step": 7, "text": "it"}], "trace": "t"}
        self.assertIn("- r: failed: why\n- r, step 7: it\n- No scaling: one run\n",
                      report.make_markdown({"runs": [failed], "tables": [], "no_scaling": "one run"}))
        shown = report._warnings({"runs": [{"name": "r", "warnings": [{"step": step, "text": "it"} for step in range(100)]}]})
        self.assertEqual((shown[0]["step"], shown[20]["text"], shown[-1]["step"]), (0, "60 more warnings, in metrics.jsonl", 99))
        timeline = {"step": 7, "clock_error_seconds": 2e-6, "kinds": ["forward"], "rows": [{"name": "rank 0", "spans": [[0, 1, 0, "F0"]]}]}
        with mock.patch("pyhadal.report.read_timeline", return_value=timeline), mock.patch("pyhadal.plot.timeline") as drawn:
            [times] = report._times({"runs": [failed]}, report.tables_by_name({"tables": []}))
        self.assertIn("Clocks agree within 2.0 µs.", times["notes"][0])
        self.assertEqual(drawn.call_args[0][2], "Step 7 of r in time, traced")
        with mock.patch("pyhadal.report.read_timeline", side_effect=Refusal("cannot be read")):
            [times] = report._times({"runs": [failed]}, report.tables_by_name({"tables": []}))
        self.assertEqual(times["notes"], ["cannot be read"])
        runs = [Run(recorded_run(self.path("one"))), Run(recorded_run(self.path("speech"), frame_width=80))]
        with mock.patch("pyhadal.plot.lines") as curve:
            list(report._curves(runs, ["one", "speech"]))
        self.assertEqual([(call[0][1], call[1]["logarithmic"]) for call in curve.call_args_list[-3:]],
                         [("Gradient norm", True), ("Learning rate", False), ("Throughput", False)])
        self.assertEqual([(one.name, one.dots) for one in curve.call_args_list[0][0][0]][::2], [("one", False), ("one: validation", True)])
        self.assertIn("Word error rate of the validation", [call[0][1] for call in curve.call_args_list])

    def test_smoothed_and_plain_loss_have_axes_of_their_own(self):
        recorded_run(self.path("one"), smoothing=0.5)
        recorded_run(self.path("plain"), smoothing=0)
        shown = [texts(svg) for svg in pictures(make_page(program.summarize([self.path("one")])))]
        smoothed = [words for words in shown if "Loss with label smoothing" in words]
        self.assertEqual(len(smoothed), 1)
        self.assertNotIn("one: validation", smoothed[0])
        self.assertIn("one: validation", shown[0])
        self.assertNotIn("Loss with label smoothing", make_page(program.summarize([self.path("plain")])))

    def test_diagnoses_come_first_and_a_failed_run_says_why(self):
        warnings = [{"event": "warning", "step": step, "text": "the update was skipped"} for step in range(1000)]
        recorded_run(self.path("one"), extra=[{"event": "diagnosis", "step": 3, "text": "gradients vanish <here>"}, *warnings])
        summary = program.summarize([self.path("one")])
        page = make_page(summary)
        self.assertLess(page.index("gradients vanish &lt;here&gt;"), page.index("<table>"))
        self.assertIn("960 more warnings", page)
        self.assertEqual(page.count("the update was skipped"), 40)
        summary["runs"][0]["failure"] = "step 7 failed"
        self.assertLess(make_page(summary).index("failed: step 7 failed"), page.index("<table>"))
        recorded_run(self.path("one"))
        self.assertIn("nothing wrong was found", make_page(program.summarize([self.path("one")])))

    def test_long_translations_wrap_and_markup_is_text(self):
        samples = [{"event": "sample", "step": step, "text": f"source: {step} <b>\nours: " + "ü" * 3000} for step in range(1, 9)]
        recorded_run(self.path("a <i>&"), extra=samples)
        page = make_page(program.summarize([self.path("a <i>&")]))
        self.assertRegex(page, r"\.text \{[^}]*pre-wrap; overflow-wrap: anywhere")
        self.assertEqual(re.findall(r'<div class="text">step (\d)', page), ["1", "5", "6", "7", "8"])
        self.assertIn("source: 1 &lt;b&gt;\nours: ü", page)
        self.assertNotIn("<i>", page)
        self.assertNotIn("<b>\nours", page)

    def test_speech_has_its_word_error_rate(self):
        recorded_run(self.path("one"), frame_width=80)
        page = make_page(program.summarize([self.path("one")]))
        self.assertIn("Word error rate of the validation", page)
        self.assertIn("WER 10.7% (step 6)", page)
        recorded_run(self.path("one"))
        self.assertNotIn("Word error rate", make_page(program.summarize([self.path("one")])))

    def test_a_long_runs_page_stays_small(self):
        recorded_run(self.path("one"), steps=20000)
        page = make_page(program.summarize([self.path("one")]))
        self.assertLess(len(page), 500_000)
        self.assertIn("Throughput", page)

    def test_a_summary_of_a_run(self):
        run = Run(recorded_run(self.path("one")))
        self.assertAlmostEqual(sum(run.summary["step_parts_seconds"].values()), run.summary["step_seconds"])
        self.assertEqual(run.summary["stages"][1]["forward_seconds"], 0.6)
        self.assertGreater(run.summary["stages"][1]["predicted_bytes"], run.summary["stages"][1]["arena_bytes"])


class ProgramTest(unittest.TestCase):
    """The program itself, in a folder with files that Python would import if the folder were on its path."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        for module in ("json", "numpy", "pandas", "runpy", "pyhadal", "argparse"):
            Path(self.folder, module + ".py").write_text("open('imported', 'w').close()\nraise SystemExit(99)\n", "utf-8")
        recorded_run(os.path.join(self.folder, "one"))

    def hadal(self, *words, **variables):
        environment = {**os.environ, "HADAL_PYTHON": sys.executable, **variables}
        environment.pop("HADAL", None)
        done = subprocess.run([HADAL, *words], capture_output=True, text=True, check=False, cwd=self.folder, env=environment)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "imported")), done)
        return done

    def test_report(self):
        for python_path in ("", "::", os.environ["PYTHONPATH"] + ":"):
            done = self.hadal("report", "one", "--out", "page.html", PYTHONPATH=python_path)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "page.html\npage.json\npage.md\n", ""))
        with open(os.path.join(self.folder, "page.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), json.loads(self.hadal("summary", "one", "--format", "json").stdout))
        self.assertIn("| model.d\\_ff | 96 |\n", Path(self.folder, "page.md").read_text("utf-8"))
        self.assertEqual(self.hadal("report", "one").stdout, "one/report.html\none/report.json\none/report.md\n")

    def test_a_python_that_does_not_know_its_own_path_starts_the_program(self):  # one that was started without PATH
        with mock.patch.object(sys, "executable", ""):
            self.assertRegex(program.run(["--version"]), r"\d")

    def test_a_wheels_command_becomes_the_program(self):
        script = "from pyhadal import program; program._INSTALLED = '/bin/sh'; program.main()"
        done = subprocess.run([sys.executable, "-c", script, "-c", "echo $HADAL_PYTHON; kill -PIPE $$"], stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (-signal.SIGPIPE, sys.executable + "\n"))

    def test_errors_are_one_line_with_the_programs_prefix(self):
        done = self.hadal("report", "gone")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
        self.assertRegex(done.stderr, "^hadal report: .*gone/metrics.jsonl")
        done = self.hadal("report", "one", "--out", "missing/x")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertRegex(done.stderr, "^hadal report: .*missing")
        done = self.hadal("report", "one", HADAL_PYTHON="/none/python3")
        self.assertEqual((done.returncode, done.stderr), (2, "hadal report: cannot start /none/python3 (No such file or directory); "
                                                          "install Python 3, or name an interpreter in HADAL_PYTHON\n"))

    def test_missing_packages_are_named(self):
        bare = os.path.join(self.folder, "bare")
        Path(bare).write_text(f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n", "utf-8")
        os.chmod(bare, 0o755)
        done = self.hadal("report", "one", HADAL_PYTHON=bare)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
        self.assertRegex(done.stderr, "^hadal report: Python packages are missing for .*matplotlib.*pip install .*matplotlib")

    def test_curve(self):
        done = self.hadal("curve", "one", "one", "--label", "a", "b", "--metric", "nll", "--svg", "x.svg", "--dark")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(os.path.join(self.folder, "x.svg"), encoding="utf-8") as file:
            self.assertLessEqual({"a", "b", "step", "nats per target token"}, set(texts(file.read().partition("?>")[2])))
        self.assertEqual(self.hadal("curve", "one", "--metric", "losss", "--svg", "x.svg").returncode, 2)

    def test_the_importer_of_models(self):
        done = self.hadal("checkpoint", "import", "one", "--out", "model")
        self.assertEqual(done.returncode, 2, done)
        self.assertRegex(done.stderr, "^hadal checkpoint import: one lacks config.json\n$")

    def test_simulate(self):
        done = self.hadal("simulate", "--stages", "3", "--micro-batches", "4", "--svg", "x.svg")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("idle", done.stdout)
        with open(os.path.join(self.folder, "x.svg"), encoding="utf-8") as file:
            self.assertLessEqual({"rank 2", "forward", "backward", "F3", "milliseconds since the step's first event"},
                                 set(texts(file.read().partition("?>")[2])))


if __name__ == "__main__":
    unittest.main()
