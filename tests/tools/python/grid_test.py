"""Grids, verdicts and lists of layouts of `hadal compare` and `hadal sweep`. ($HADAL: the program.)"""

import argparse
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from pyhadal import compare_grid, program, sweep
from pyhadal.corpus import Corpus, _files, _rows, prepare
from pyhadal.grid import Cell, Grid, ask, load
from pyhadal.grid_runs import (Record, Runner, Stop, _end_of, _last_step, _poll, _Progress, duration, judge, rate_text, read_record, read_state,
                               write_state)
from pyhadal.refusal import Refusal
from pyhadal.run import parse_config
from pyhadal.sweep import read_layouts

PAPERS = Path(__file__).resolve().parents[3] / "configs/papers"
AXES = """
axes { name: "method" values { label: "deepnorm" files: "deepnorm.textproto" } values { label: "post_ln" set: "model.residual.method=post_ln" } }
axes {
  name: "depth"
  values { label: "12" set: "model.encoder_layers=12" set: "model.decoder_layers=12" }
  values { label: "2" set: "model.encoder_layers=2" set: "model.decoder_layers=2" }
}
"""


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def write(self, name, text):
        (self.folder / name).write_text(text, "utf-8")
        return str(self.folder / name)


class GridTest(Scratch):
    def setUp(self):
        super().setUp()
        self.write("base.textproto", "model { d_model: 8 d_ff: 16 heads: 2 } stop { steps: 10 }")
        self.write("deepnorm.textproto", 'model { residual { method: "deepnorm" } }')

    def load(self, text, *overrides, seeds=()):
        return load(self.write("grid.textproto", f'base: "base.textproto"\n{text}'), overrides, seeds)

    def test_every_combination_is_a_cell_cheap_ones_first(self):
        cells = self.load(AXES).cells
        self.assertEqual([cell.name for cell in cells], ["method=deepnorm,depth=2", "method=post_ln,depth=2", "method=deepnorm,depth=12",
                                                         "method=post_ln,depth=12"])
        self.assertEqual((cells[0].cost * 6, cells[0].steps, cells[1].labels), (cells[2].cost, 10, ["post_ln", "2"]))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            compare_grid._print_list(self.load(AXES), str(self.folder))
        self.assertEqual([line.split()[2] for line in said.getvalue().splitlines()[1:]], ["7.1%", "7.1%", "42.9%", "42.9%"])

    def test_settings_lie_over_files_and_the_command_line_over_all(self):
        cell = self.load('set: "model.residual.method=pre_ln"\n' + AXES, "model.decoder_layers=3").cells[0]
        self.assertEqual(cell.files, [str(self.folder / name) for name in ("base.textproto", "deepnorm.textproto")])
        self.assertEqual(cell.settings, ["model.residual.method=pre_ln", "model.encoder_layers=2", "model.decoder_layers=2", "model.decoder_layers=3"])

    def test_seeds_are_one_more_axis(self):
        grid = self.load(AXES, seeds=[7, 8])
        self.assertEqual((len(grid.cells), grid.cells[1].name), (8, "method=deepnorm,depth=2,seed=8"))
        self.assertEqual([axis["seeds"] for axis in grid.axes], [False, False, True])
        self.assertTrue(self.load('axes { name: "s" values { label: "a" set: "seed=1" } values { label: "b" set: "seed=2" } }').axes[0]["seeds"])
        self.assertFalse(self.load('axes { name: "s" values { label: "a" set: "seed=1" files: "deepnorm.textproto" } }').axes[0]["seeds"])

    def test_an_exclusion_leaves_out_what_all_its_parts_name(self):
        self.assertEqual([cell.name for cell in self.load(AXES + 'exclude: "depth=12,method=post_ln"').cells],
                         ["method=deepnorm,depth=2", "method=post_ln,depth=2", "method=deepnorm,depth=12"])
        self.assertEqual([cell.name for cell in self.load(AXES + 'exclude: "method=post_ln|deepnorm,depth=2"').cells],
                         ["method=deepnorm,depth=12", "method=post_ln,depth=12"])

    def test_what_cannot_be_run_is_refused(self):
        ten = " ".join(f'values {{ label: "{value}" set: "seed=1" }}' for value in range(10))
        for text, message in (
                ("axis { }", 'did you mean "axes"'), ("total_minutes: -1", r"grid.textproto:2:.*\[0, inf\)"), ("", "no axes"),
                ('axes { name: "a" }', 'axis "a" has no values'), ('axes { name: "a/b" values { label: "1" } }', "letters, digits"),
                ('axes { name: "a" values { label: "1" } values { label: "1" } }', 'axis "a": label "1" is given twice'),
                (AXES + 'exclude: "seed=1"', "the axes are method, depth"), (AXES + 'exclude: "depth=3"', "it has 12, 2"),
                (AXES + 'exclude: "depth=2" exclude: "depth=12"', "every cell"),
                (" ".join(f'axes {{ name: "axis{axis}" {ten} }}' for axis in range(6)), 'more than 100000 cells, with the axes up to "axis5"'),
                ('axes { name: "heads" values { label: "2" } values { label: "3" set: "model.heads=3" } }',
                 r"(?s)grid.textproto: heads=3: .*--set model.heads=3"),
                ('axes { name: "a" values { label: "x" set: "modle.heads=3" } }', '(?s)a=x: .*did you mean "model"'),
                ('axes { name: "a" values { label: "x" files: "gone.textproto" } }', "gone.textproto: cannot be read")):
            with self.subTest(text=text[-40:]), self.assertRaisesRegex(Refusal, message) as caught:
                self.load(text)
            self.assertEqual(caught.exception.exit_code, 2)

    def test_every_grid_of_the_papers_is_read(self):
        grids = [path for path in PAPERS.glob("*/*.textproto") if path.read_text("utf-8").startswith("# proto-message: hadal.config.Comparison\n")]
        self.assertGreaterEqual(len(grids), 19)
        for path in grids:
            with self.subTest(path=path.name):
                self.assertTrue(load(str(path)).settings["title"])

    def test_tables_of_papers_have_their_settings(self):
        for grid, name, values in (
                ("deepnet_table1", "method=deepnorm,depth=100", {"learning_rate.peak": 1.5e-3}),
                ("deepnet_table1", "method=t_fixup,depth=100", {"learning_rate.peak": 5e-4}),
                ("branchnorm_table1", "method=branchnorm,depth=250", {"model.residual.growth_updates": 4000, "model.residual.method": "branchnorm"}),
                ("branchnorm_sweep", "method=branchnorm,rate=8e-4,warmup=none", {"learning_rate.warmup_updates": 0}),
                ("branchnorm_growth", "growth=sigmoid,T=100", {"model.residual.branch_growth": "sigmoid"}),
                ("b2t_table1", "method=b2t,depth=60L-12L", {"model.encoder_layers": 60, "model.decoder_layers": 12}),
                ("b2t_wikitext", "method=b2t,depth=16", {"model.encoder_layers": 0})):
            cell = next(cell for cell in load(str(PAPERS / f"paper/{grid}.textproto")).cells if cell.name == name)
            found = parse_config(program.run(["config", "show", *cell.files, *(word for text in cell.settings for word in ("--set", text))]))
            self.assertEqual({path: found[path] for path in values}, values)


class QuestionsTest(Scratch):
    def ask(self, text, **more):
        return ask([{"files": [self.write("run.textproto", text)], "set": [], **more}])[0]

    def test_the_cost_is_of_weights_tokens_and_steps(self):
        text = "model { d_model: 4 d_ff: 8 heads: 2 encoder_layers: %d decoder_layers: 3 } batch { micro_batches: 2 target_tokens: 10 } stop { steps: 5 }"
        self.assertEqual(self.ask(text % 2)["cost"], 3 * (2 * (64 + 64) + 3 * (128 + 64)) * 20 * 5)
        self.assertEqual(self.ask(text % 0)["cost"], 3 * (3 * (64 + 64)) * 20 * 5)

    def test_another_config_is_told_by_its_fields_and_a_limit_or_a_layout_is_none(self):
        self.write("config.resolved.textproto", program.run(["config", "show", self.write("old.textproto", "stop { steps: 100 }")]))
        plan = lambda text: self.ask(text, run=str(self.folder))
        self.assertEqual({key: plan("stop { steps: 100 } pipeline { threads: 7 }")[key] for key in ("changes", "limits")}, {"changes": "", "limits": False})
        self.assertEqual(plan("stop { steps: 200 }")["limits"], True)
        self.assertEqual(plan("stop { steps: 100 } model { heads: 4 }")["changes"], "  model.heads: 8 -> 4\n")
        self.assertNotIn("changes", self.ask("", run=str(self.folder / "gone")))

    def test_the_unigram_level_is_that_of_the_sentences_that_are_validated(self):
        self.write("a", "x\nx\nx\n"), self.write("b", "x x\ny\ny z\n")
        self.write("c", "x\nx\n"), self.write("d", "x x x x x x\ny z\n")
        paths, data = [str(self.folder / name) for name in "abcd"], str(self.folder / "data")
        program.run(["prepare", "--train", *paths[:2], "--valid", *paths[2:], "--out", data, "--vocab-type", "word", "--vocab-size", "0"])
        text = f'data {{ train: "{data}/train" validation: "{data}/valid" }} ' + \
            'validation { every_steps: 10 max_sentences: %d } batch { source_tokens: 9 target_tokens: %d }'
        level = lambda sentences, tokens: self.ask(text % (sentences, tokens), unigram=True).get("unigram_nll")
        for sentences in (0, 1):
            words = ["inspect", "corpus", f"{data}/train", "--score", f"{data}/valid", "--max-sentences", str(sentences)]
            self.assertIn(f"{level(sentences, 9):.4f}", program.run(words))
        self.assertNotEqual(level(1, 9), level(0, 9))
        self.assertNotEqual(level(1, 4), level(1, 9), "the first sentence does not fit")
        self.assertIsNone(level(0, 2), "none fits")
        self.assertNotIn("unigram_nll", self.ask((text % (0, 9)).replace("every_steps: 10", "every_steps: 0"), unigram=True))
        with self.assertRaisesRegex(Refusal, "gone"):
            self.ask((text % (0, 9)).replace("/valid", "/gone"), unigram=True)


def record(nll, steps, validations):
    steps = [{"step": step, "nll": nll(step), "loss": 9.0} for step in range(1, steps + 1)]
    return Record(steps=steps, validations=[{"step": step, "nll": nll} for step, nll in validations])


class VerdictTest(unittest.TestCase):
    def test_a_run_is_judged_by_the_distance_below_the_unigram_level(self):
        run = record(lambda step: 5.0, 30, [(10, 6.5), (20, 6.2), (25, 6.2), (30, 6.4)])
        for level, end, verdict in ((6.51, "done", "trains"), (6.49, "cut", "between"), (6.26, "done", "between"), (6.24, "done", "fails"),
                                    (6.0, "done", "fails"), (9.0, "diverged", "diverged")):
            found = judge({"end": end, "unigram_nll": level}, run)
            self.assertEqual((found.pop("below_unigram"), found), (level - 6.2, {"steps": 30, "loss": 9.0, "best_validation_nll": 6.2, "best_step": 20, "verdict": verdict}))
        self.assertEqual(judge({"end": "done"}, run)["verdict"], "not known")
        for limit, verdict in ((0.3, "trains"), (0.05, "between")):  # the limits themselves
            self.assertEqual(judge({"end": "done", "unigram_nll": limit}, record(lambda step: 5.0, 30, [(10, 0.0)]))["verdict"], verdict)

    def test_a_run_that_is_still_learning_has_not_failed(self):
        for steps, fall, verdict in ((30, 0.06, "too short"), (30, 0.04, "fails"), (30, -1, "fails"), (4, 0, "too short")):
            run = record(lambda step: 9 - fall * step / 6, steps, [(steps, 6.2)])
            self.assertEqual(judge({"end": "done", "unigram_nll": 6.0}, run)["verdict"], verdict)

    def test_what_is_not_finite_is_no_result(self):
        run = record(lambda step: 5.0, 2, [(1, None), (2, 6.2)])
        run.steps[-1]["loss"] = None
        found = judge({"end": "done", "unigram_nll": 6.6}, run)
        self.assertEqual((found["best_step"], found["verdict"], "loss" in found), (2, "trains", False))
        self.assertEqual(judge({"end": "done", "unigram_nll": 6.6}, record(lambda step: 5.0, 2, [(1, None)]))["verdict"], "not known")


class RunsTest(Scratch):
    def test_the_state_of_a_cell_is_read_as_it_was_written(self):
        self.assertEqual(read_state(str(self.folder))["end"], "none")
        state = {"end": "cut", "exit_code": 4, "wall_seconds": 12.5, "cpu_seconds": 11.25, "unigram_nll": 5.125}
        write_state(str(self.folder), state)
        self.assertEqual(read_state(str(self.folder)), state)
        for text in ("", "{}", "[1]", '{"end": 3}', '{"end": "finished"}'):
            self.write("cell.json", text)
            with self.assertRaisesRegex(Refusal, "remove .* to run this cell again") as caught:
                read_state(str(self.folder))
            self.assertEqual(caught.exception.exit_code, 3)

    def test_a_record_without_a_step_is_none_and_a_resumed_run_has_not_finished(self):
        self.assertIsNone(read_record(str(self.folder)))
        events = [{"event": "run", "model": "m", "parameters": 7}, {"event": "step", "step": 1}, {"event": "finish", "reason": "all steps done"}]
        self.write("metrics.jsonl", "".join(json.dumps(event) + "\n" for event in events))
        found = read_record(str(self.folder))
        self.assertEqual((found.model, found.parameters, found.finish), ("m", 7, "all steps done"))
        self.write("metrics.jsonl", "".join(json.dumps(event) + "\n" for event in [*events, events[0]]))
        self.assertEqual(read_record(str(self.folder)).finish, "")

    def test_a_child_ends_with_its_code_and_reports_to_no_supervisor(self):
        for script, code in (("exit ${HADAL_SUPERVISOR_REPORT:+7}", 0), ("exit 7", 7), ("kill -KILL $$", 128 + signal.SIGKILL)):
            os.chmod(self.write("hadal", f"#!/bin/sh\necho said; {script}\n"), 0o755)
            os.makedirs(self.folder / "logs", exist_ok=True)
            cell = Cell("a", [], [], [])
            with mock.patch.dict(os.environ, HADAL=str(self.folder / "hadal"), HADAL_SUPERVISOR_REPORT="report"), mock.patch("pyhadal.grid_runs.ask_of"):
                process = Runner(Grid([cell], []), str(self.folder))._start(cell, [])
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            self.assertEqual(_poll(process)[0], code)
        self.assertEqual((self.folder / "logs/a.log").read_text(), "said\n" * 3)
        self.assertEqual([_end_of(137, cause) for cause in ("", "signal", "run")], ["failed", "interrupted", "cut"])  # killed: by whom?

    def runner(self, **options):
        os.makedirs(self.folder / "logs", exist_ok=True)
        with mock.patch("pyhadal.grid_runs.ask_of"):
            return Runner(Grid([Cell("a", [], [], [], cost=4), Cell("b", [], [], [])], []), str(self.folder), **options)

    def test_messages_that_cannot_be_written_do_not_end_the_work(self):
        script = "import sys; from pyhadal.command import tell; tell('a'); tell('b', stream=sys.stderr); open(sys.argv[1], 'w').close()"
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([sys.executable, "-c", script, str(self.folder / "end")], stdout=full, stderr=full, check=False)
        self.assertEqual((done.returncode, (self.folder / "end").exists()), (0, True))

    def test_a_signal_while_no_run_is_there_asks_to_be_queued_again(self):
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            self.addCleanup(signal.signal, number, signal.SIG_DFL)
        for module, words, reader, number in ((compare_grid, ["grid"], "load", signal.SIGUSR1), (sweep, ["layouts", "config"], "read_layouts", signal.SIGUSR2)):
            parser = argparse.ArgumentParser()
            module.add_arguments(parser)
            with mock.patch.object(module, reader, lambda *_: signal.raise_signal(number)), self.assertRaises(SystemExit) as caught:
                module.run(parser.parse_args(words))
            self.assertEqual(caught.exception.code, 85)
        runner = self.runner()
        with self.assertRaises(SystemExit), runner.report():
            sys.exit(143)
        runner.stopped = True
        with runner.report():
            sys.exit(143)

    def test_a_run_whose_records_are_damaged_does_not_stop_the_others(self):
        os.chmod(self.write("hadal", "#!/bin/sh\n"), 0o755)
        runner = self.runner(chosen=[1, 1], judged=False)
        self.assertEqual(runner.chosen, [0], "once")
        runner._spent = 0
        os.makedirs(self.folder / "runs/a")
        self.write("runs/a/metrics.jsonl", "{damaged\n{}\n")
        with mock.patch.dict(os.environ, HADAL=str(self.folder / "hadal")), contextlib.redirect_stdout(io.StringIO()) as said:
            before = {**read_state(str(self.folder / "runs/a")), "wall_seconds": 100.0, "cpu_seconds": 100.0}
            runner._train(0, str(self.folder / "runs/a"), before, again=False)
            runner._train(0, str(self.folder / "runs/a"), before, again=True)
        self.assertEqual(runner._measured_cost, 4, "of the run that was measured from its start")
        after = read_state(str(self.folder / "runs/a"))
        self.assertEqual((after["end"], after["wall_seconds"] > 100, after["cpu_seconds"] >= 100), ("done", True, True))
        self.assertRegex(said.getvalue(), r"done in .*, no steps \(.*metrics.jsonl")
        self.assertFalse(sweep._is_finished(str(self.folder), Cell("a", [], [], [])))
        for reason, finished in (("all steps done", True), ("stopped on a signal or a time limit; …", False), ("no better validation", True)):
            self.write("runs/a/metrics.jsonl", f'{{"event":"step","step":1}}\n{{"event":"finish","reason":"{reason}"}}\n')
            self.assertEqual(sweep._is_finished(str(self.folder), Cell("a", [], [], [])), finished)
        runner._grid.settings["run_minutes"] = 1.0  # a run that a shorter limit has cut continues
        for seconds, continues in ((60.0, False), (59.0, True)):
            write_state(str(self.folder / "runs/a"), {"end": "cut", "exit_code": 85, "wall_seconds": seconds, "cpu_seconds": 1.0})
            with mock.patch.object(runner, "_train") as train, contextlib.redirect_stdout(io.StringIO()):
                runner._run_cell(0, {"changes": "", "limits": False})
            self.assertEqual(train.called, continues)

    def test_what_is_said_of_a_run(self):
        runner, folder = self.runner(), str(self.folder)
        runner._measured_seconds, runner._measured_cost = 30.0, 2.0
        self.assertEqual(runner._expected(runner._grid.cells[0], 10), ", about 1m00s")
        runner._grid.settings["run_minutes"] = 0.5
        self.assertEqual(runner._expected(runner._grid.cells[0], 10), ", at most 20s")
        events = [{"event": "step", "step": 1, "nll": 5.0}, {"event": "validation", "step": 1, "nll": 5.25},
                  *({"event": "diagnosis", "step": step, "text": text} for step, text in ((1, "a"), (2, "b")))]
        said = "1 steps, best validation nll 5.250, 0.25 above the unigram level: too short"
        for more, diagnosis in (([], "\n  diagnosis at step 2: b"), ([{"event": "diagnosis", "step": 3, "text": "over: b"}], "")):
            self.write("metrics.jsonl", "".join(json.dumps(event) + "\n" for event in [*events, *more]))
            self.assertEqual(runner._result(folder, {"end": "done", "unigram_nll": 5.0}), said + diagnosis)
        self.assertIn("0.25 below the unigram level: between", runner._result(folder, {"end": "done", "unigram_nll": 5.5}))
        self.write("metrics.jsonl", '{"event":"step","step":7,"nll":1}\n{"event":"validation","step":7}\n{"event":"step","step":8')
        self.assertEqual((_last_step(folder), _last_step("gone")), (7, 0))
        with mock.patch("pyhadal.grid_runs.time.monotonic", side_effect=[0, 4, 10, 60, 71]), contextlib.redirect_stderr(io.StringIO()) as shown:
            progress = _Progress("a", 40)
            for done in (5, 10, 20, 15):  # a run that resumes is not behind itself
                progress.show(done)
        self.assertEqual(shown.getvalue(), "a  25%  10/40 steps  ETA 30s\na  50%  20/40 steps  ETA 1m11s\n")
        self.assertEqual([rate_text(value) for value in (7, 120, 999.4, 1234, 12345, 123456, 2e6)],
                         ["7", "120", "999", "1.23k", "12.3k", "123k", "2.00M"])

    def test_a_run_that_has_weights_translates(self):
        runner = self.runner(test_source="text")
        for end, translates in (("done", True), ("cut", True), ("diverged", False), ("interrupted", False), ("failed", False)):
            with mock.patch.object(runner, "_start") as start, mock.patch("pyhadal.grid_runs._poll", return_value=(0, 0.0)), \
                    contextlib.redirect_stdout(io.StringIO()):
                runner._translate(0, {"end": end})
            self.assertEqual(start.called, translates, end)
        with mock.patch.object(runner, "_start") as start, mock.patch("pyhadal.grid_runs._poll", return_value=(3, 0.0)), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            runner._translate(0, {"end": "done"})
            runner._stop.asked = True
            runner._translate(0, {"end": "done"})
        self.assertEqual((start.call_count, runner.failed), (1, 1), "none is begun after a signal")
        self.assertIn("a: not translated, exit code 3; its output is in ", said.getvalue())

    def test_a_run_that_stops_by_itself_stops_the_grid_and_one_without_a_budget_does_not(self):
        for spent, stops in ((0, True), (60, False)):
            runner = self.runner()
            runner._grid.settings["total_minutes"], runner._spent = 1.0, spent
            runner._count("interrupted")
            self.assertEqual((runner.waiting, runner._stop.asked), (1, stops))

    def test_signals_while_runs_are_there(self):
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_IGN))
        before = signal.getsignal(signal.SIGINT)
        with Stop() as stop:
            self.assertIs(signal.getsignal(signal.SIGHUP), signal.SIG_IGN, "nohup")
            signal.raise_signal(signal.SIGUSR1)
            self.assertTrue(stop.asked)
            with mock.patch("os.kill") as kill:
                signal.raise_signal(signal.SIGINT)
                kill.assert_not_called()
                signal.raise_signal(signal.SIGINT)
            kill.assert_called_with(os.getpid(), signal.SIGINT)
            self.assertIs(signal.getsignal(signal.SIGINT), signal.SIG_DFL)
        self.assertIs(signal.getsignal(signal.SIGINT), before)

    def test_the_unigram_level_of_a_cell_does_not_need_the_corpus_of_another(self):
        with mock.patch("pyhadal.grid_runs.ask_of", side_effect=[Refusal("b: gone"), [{"unigram_nll": 2.5}]]) as asked:
            self.assertEqual(self.runner()._level(0), {"unigram_nll": 2.5})
        self.assertEqual([[cell.name for cell in call.args[0]] for call in asked.call_args_list], [["a", "b"], ["a"]])

    def test_a_corpus_has_the_splits_that_its_folder_has(self):
        self.write("train.json", '{"samples": 1234, "target_vocabulary": {"size": 56}}'), self.write("test.json", "{}")
        corpus = Corpus(self.folder)
        self.assertEqual((corpus.train, corpus.validation, corpus.test), (str(self.folder / "train"), None, str(self.folder / "test")))
        self.assertEqual(repr(corpus), f"Corpus({str(self.folder)!r}: 1,234 samples, 56 ids)")

    def test_columns_of_different_lengths_are_no_table(self):
        with self.assertRaisesRegex(Refusal, "source and target have 2 and 1 rows"):
            list(_rows({"source": ["a", "b"], "target": ["c"]}, ""))
        with self.assertRaisesRegex(Refusal, "row 1 is of texts, those before are of pairs"):
            _files([("a", "b"), "c"], "", str(self.folder / "rows"))
        with self.assertRaisesRegex(Refusal, "the text has no rows"):
            _files([], "", str(self.folder / "rows"))
        with mock.patch("pyhadal.program.run", side_effect=Refusal("asked")) as asked, self.assertRaisesRegex(Refusal, "asked"):
            prepare("both.tsv", out="x", direction="de-en", separate=False, set_=["a=1", None], lower=True)
        self.assertEqual(asked.call_args[0][0], ["prepare", "--train", "both.tsv", "--out", "x", "--set", "a=1", "--lower", "--direction", "de-en"])

    def test_an_array_of_jobs_is_known_by_its_number(self):
        for said, number in (("4711;cluster\n", "4711"), ("Nodes: 2\nSubmitted batch job 17 on cluster 5\n", "17")):
            self.write("submitted", said)
            with mock.patch.object(sweep, "_run_to_end", return_value=(0, "")) as asked:
                sweep._check_ended(str(self.folder))
            asked.assert_called_with(["squeue", "--noheader", f"--jobs={number}"])
        self.write("submitted", "held\n")
        with self.assertRaisesRegex(Refusal, "without a job number; remove .*/submitted") as caught:
            sweep._check_ended(str(self.folder))
        self.assertEqual(caught.exception.exit_code, 1)

    def test_durations(self):
        self.assertEqual([duration(seconds) for seconds in (0.04, 9.94, 9.96, 200, 18420, 183600)], ["0.0s", "9.9s", "10s", "3m20s", "5h07m", "2d03h"])

    def test_layouts(self):
        path = self.write("list", '# two\n\none 1\n  grid\t4   --set pipeline.replicas=2 --set pipeline.schedule="gpipe"\r\n')
        self.assertEqual(read_layouts(path), [("one", 1, [], 3), ("grid", 4, ["pipeline.replicas=2", 'pipeline.schedule="gpipe"'], 4)])
        for text, message in (("# nothing\n", "list has no layout"), ("a 1\n../b 2\n", 'list:2: "../b" is not a valid name of a run'),
                              ("..  2\n", 'list:1: "..".*not a valid name'), ("a\n", 'list:1: the name "a" must be followed by the number of ranks'),
                              ("a 0\n", "number of ranks, 1 or more"), ("a two\n", "number of ranks, 1 or more"),
                              ("a 1\nb 2\n\na 3\n", 'list:4: the layout "a" is defined twice'), ("a 1 --run-dir x\n", 'list:1: "--run-dir": the number'),
                              ("a 1 --set\n", 'list:1: "--set": the number of ranks'), ("a 1\n" + "#" * (1 << 20), "list: larger than 1 MiB")):
            self.write("list", text)
            with self.subTest(text=text[:20]), self.assertRaisesRegex(Refusal, message):
                read_layouts(path)


if __name__ == "__main__":
    unittest.main()
