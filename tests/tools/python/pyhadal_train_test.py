"""pyhadal's configs, corpora, jobs and models with the program ($HADAL): the same words, the same numbers, and nothing left over."""

import argparse
import contextlib
import copy
import ctypes
import glob
import io
import json
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
import pandas

import pyhadal
from pyhadal import document, jobs, program
from pyhadal.follow import TRACKERS, Tracker, follow, run as run_follow
from pyhadal.make_corpus import english, german
from pyhadal_test import make_run

TREE = Path(__file__).resolve().parents[3]
PAIRS = [(german(number), english(number)) for number in range(1, 401)]
SMALL = {"model.encoder_layers": 1, "model.decoder_layers": 1, "model.d_model": 32, "model.d_ff": 64, "model.heads": 2, "model.dropout": 0.0,
         "model.max_positions": 64, "batch.micro_batches": 2, "batch.source_tokens": 256, "batch.target_tokens": 256, "pipeline.threads": 1,
         "learning_rate.warmup_updates": 5, "stop.steps": 10, "validation.every_steps": 5, "instruments.enabled": True}
ENDLESS = {**SMALL, "stop.steps": 1_000_000, "validation.every_steps": 0}


def last_words(*arguments):
    """What the program says of a failure, without its prefix."""
    said = subprocess.run([os.environ["HADAL"], *arguments], capture_output=True, text=True).stderr
    return re.sub(r"^hadal [a-z ]+: ", "", said.strip())


class ConfigTest(unittest.TestCase):
    def test_the_fields_are_the_programs(self):
        config, groups = pyhadal.Config(), [""]
        for group in groups:
            shown = subprocess.run([os.environ["HADAL"], "config", "explain", *filter(None, [group])], capture_output=True, text=True).stdout
            wanted = dict(re.findall(r"^  (\w+)  .*?(?:  \[(.*)\])?$", shown, re.MULTILINE))
            message = config[group] if group else config
            fields = message._fields()
            groups += [f"{group}.{name}".lstrip(".") for name, field in fields.items() if field.type is None]
            self.assertEqual(list(fields), list(wanted), group)
            for name, field in fields.items():
                if field.type in (int, float) and field.default is not None and not field.repeated:
                    self.assertEqual(float(wanted[name]), field.default, f"{group}.{name}")
                elif field.type is str and field.default:
                    self.assertEqual(wanted[name], f'"{field.default}"')
        self.assertIn("float, in [0, 0.99], default 0.1", type(config.model).dropout.__doc__)

    def test_every_ready_made_config_survives(self):
        survived = 0
        for path in glob.glob(str(TREE / "configs/**/*.textproto"), recursive=True):
            if "hadal.config.RunConfig" in Path(path).read_text("utf-8"):
                survived += 1
                config = pyhadal.Config(path)
                with tempfile.TemporaryDirectory() as scratch:
                    config.write(os.path.join(scratch, "a.textproto"))
                    self.assertEqual(pyhadal.Config(os.path.join(scratch, "a.textproto")), config, path)
        self.assertGreater(survived, 50)
        files = [str(TREE / f"configs/{name}.textproto") for name in ("small", "method/deepnorm", "block/llama")]
        shown = program.run(["config", "show", *files])
        self.assertEqual(program.run(["config", "show", "/dev/stdin"], str(pyhadal.Config("small", "method/deepnorm", "block/llama"))), shown)
        gain = pyhadal.Config("small", "method/deepnorm").resolved().model.residual.encoder.residual_gain
        self.assertIn(f"residual_gain: {gain!r}"[:20], shown)

    def test_errors_are_in_the_programs_words(self):
        config = pyhadal.Config("small")
        cases = [(lambda: setattr(config.model, "encodr_layers", 3), "model { encodr_layers: 3 }"),
                 (lambda: config.model.dropuot, "model { dropuot: 0 }"),
                 (lambda: config.update({"modle.heads": 3}), "modle { heads: 3 }"),
                 (lambda: setattr(config.model, "dropout", 1.5), "model { dropout: 1.5 }"),
                 (lambda: setattr(config.model.block, "rotary_share", 0.0), "model { block { rotary_share: 0.0 } }"),
                 (lambda: setattr(config.model.residual, "method", "deepnrm"), 'model { residual { method: "deepnrm" } }')]
        with tempfile.TemporaryDirectory() as scratch:
            file = os.path.join(scratch, "x.textproto")
            for work, text in cases:
                Path(file).write_text(text, "utf-8")
                words = re.sub(r"^\S*textproto:\d+:\d+: ", "", last_words("config", "diff", file, "/dev/null"))
                with self.assertRaises(pyhadal.Refusal) as caught:
                    work()
                self.assertEqual((str(caught.exception), caught.exception.exit_code), (words, 2))
            Path(file).write_text("model {\n  heads: 4\n  dropout: 1.5 }", "utf-8")
            with self.assertRaisesRegex(pyhadal.Refusal, r"x.textproto:3:3: model.dropout = 1.5 is not allowed"):
                pyhadal.Config(file)
            Path(file).write_text("seed: 0x10 instruments { enabled: 0 } learning_rate { peak: 1f }", "utf-8")
            self.assertEqual(repr(pyhadal.Config(file).values()), "{'seed': 16, 'instruments.enabled': False, 'learning_rate.peak': 1.0}")
            with self.assertRaisesRegex(pyhadal.Refusal, "already exists; remove it, or choose another name"):  # not what Config writes
                config.write(file)
            for _ in range(2):  # what it has written it may replace
                config.write(os.path.join(scratch, "own.textproto"))
        for name, words in (("gone", "gone: no such file, and no ready-made config of this name"), ("gone.textproto", "gone.textproto: No such file")):
            with self.assertRaisesRegex(pyhadal.Refusal, words):
                pyhadal.Config(name)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(program.run(["--version"], show=True), said.getvalue())
        self.assertRegex(said.getvalue(), "^hadal [0-9]")
        self.assertFalse(hasattr(config.model, "dropuot"))
        with self.assertRaisesRegex(pyhadal.Refusal, "model is a group"):
            config.model = 3
        with self.assertRaisesRegex(pyhadal.Refusal, r"optimizer.frozen = \[\{'a'\}\] is not allowed; give list\[str\]"):
            config.optimizer.frozen = [{"a"}]
        with self.assertRaisesRegex(pyhadal.Refusal, r"data.train = \{'a'\} is not allowed; give Optional\[str\]"):
            config.data.train = {"a"}
        other = copy.copy(config)
        other.model.heads, config.model.heads = 8, 7
        self.assertEqual(other.model.heads, 8)
        with self.assertRaisesRegex(pyhadal.Refusal, "model.heads = 7 is not allowed; it must divide model.d_model = 192"):
            config.resolved()

    def test_the_later_of_two_that_exclude_each_other_holds(self):
        config = pyhadal.Config({"learning_rate.warmup_fraction": 0.1, "pipeline.split": [1, 2]})
        config.learning_rate.warmup_updates = np.int64(7)
        del config.pipeline.split
        self.assertEqual(config.values(), {"learning_rate.warmup_updates": 7})
        del config.learning_rate
        self.assertEqual(config.values(), {})
        config.model.heads, config.seed = 2, 3
        self.assertEqual(repr(config.model), "Model(heads=2)")
        self.assertIn("heads", dir(config.model))
        config.values()["model.heads"] = 9
        self.assertEqual((config.model.heads, config == 3), (2, False))
        config.model.heads = config.seed = None
        config.update({"data.train": Path("a"), "pipeline.split": (1, 2), "seed": mock.Mock(spec=["as_py"], **{"as_py.return_value": 4})})
        self.assertEqual(config.values(), {"data.train": "a", "pipeline.split": [1, 2], "seed": 4})
        config.model.block.norm, config.model.block.norm_epsilon = "rms", 1e-6
        del config.data, config.pipeline, config.seed, config.model.block.norm
        self.assertEqual(config.values(), {"model.block.norm_epsilon": 1e-6})
        del config.model
        config["optimizer.frozen"] = "encoder.*"
        self.assertEqual((config.values(), config.optimizer.frozen), ({"optimizer.frozen": ["encoder.*"]}, ("encoder.*",)))


    def test_a_grid_with_a_run_of_another_config_is_refused_and_a_failed_run_is_a_row(self):
        with tempfile.TemporaryDirectory() as scratch:
            record = Path(scratch, "grid.json")

            def end(state):
                if state:
                    record.write_text(json.dumps({"axes": [], "cells": [{"labels": [], "directory": "runs/a", "state": state}]}), "utf-8")
                raise pyhadal.Refusal("left alone", 1)

            for state, refused in (("done", True), ("failed", False), ("", True)):  # the last call writes no record
                with mock.patch("pyhadal.program.run", side_effect=lambda *_, **__: end(state)):
                    if refused:
                        with self.assertRaisesRegex(pyhadal.Refusal, "left alone"):
                            pyhadal.compare("grid.textproto", out=scratch)
                        record.unlink() if state else None
                    else:
                        frame = pyhadal.compare("grid.textproto", out=scratch)
                        self.assertEqual(frame.to_dict("records"), [{"directory": os.path.join(scratch, "runs/a"), "state": "failed"}])


class Table(dict):
    """The interface of datasets.Dataset that is used."""

    column_names = property(list)


class Stream(filter):
    """The interface of datasets.IterableDataset that is used: rows. Each of its columns would read the stream anew, in an order of its own."""

    column_names = ["source", "target"]

    def __new__(cls, rows):
        return super().__new__(cls, None, rows)


class TrainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.corpus = pyhadal.prepare(PAIRS, PAIRS[:20], out=cls.path("data"), vocab_size=100)
        cls.tracked = []
        fake = {"json": lambda run: (lambda numbers, step: cls.tracked.append((run.config["model.d_model"], step, numbers)), lambda failed: setattr(cls, "failed", failed))}
        with mock.patch.dict(TRACKERS, fake):
            cls.run_ = pyhadal.train(pyhadal.Config(SMALL), cls.corpus, run_dir=cls.path("run"), track="json")
        cls.addClassCleanup(cls.run_.close)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.scratch.name, name)

    def train_until(self, run_dir, at_a_step, **options):
        """Trains without an end, and calls at_a_step() when the first step is reported."""
        poll, calls = jobs.Follower.poll, [at_a_step]

        def report(follower):
            events = poll(follower)
            if calls and any(event["event"] == "step" for event in events):
                calls.pop()()
            return events

        with mock.patch.object(jobs.Follower, "poll", report):
            return pyhadal.train(pyhadal.Config(ENDLESS), self.corpus, run_dir=self.path(run_dir), **options)

    def test_every_kind_of_text_gives_the_same_corpus(self):
        sources, targets = zip(*PAIRS)
        for side, lines in (("de", sources), ("en", targets)):
            Path(self.path(f"text.{side}")).write_text("".join(line + "\n" for line in lines), "utf-8")
        kinds = [((self.path("text.de"), self.path("text.en")), ""), (pandas.DataFrame({"source": sources, "target": targets}), ""),
                 (pandas.DataFrame({"en": targets, "de": sources}), "de-en"), (pandas.DataFrame(PAIRS), "0-1"),
                 (Table(translation=[{"de": source, "en": target} for source, target in PAIRS]), "de-en"),
                 ({"en": targets, "de": sources, "text": targets}, "de-en"),
                 (Stream({"source": source, "target": target} for source, target in PAIRS), "")]
        wanted = Path(self.corpus.path, "train.00000.shard").read_bytes()
        for number, (text, direction) in enumerate(kinds):
            corpus = pyhadal.prepare(text, out=self.path(f"kind{number}"), direction=direction, vocab_size=100)
            self.assertEqual(Path(corpus.path, "train.00000.shard").read_bytes(), wanted)
        self.assertEqual((self.corpus.samples, self.corpus.vocabulary_size, corpus.validation), (400, 100, None))
        self.assertEqual(self.corpus.report, json.loads(Path(self.corpus.path, "cleaning.json").read_text("utf-8")))
        with self.assertRaisesRegex(pyhadal.Refusal, "none: has no train.json"):
            pyhadal.Corpus(self.path("none"))
        with self.assertRaisesRegex(pyhadal.Refusal, "row 0 is not a source and a target"):
            pyhadal.prepare([("a", 1)], out=self.path("none"))
        for values in (["a", None], ["a", float("nan")], ["a", ["b", "c"]]):
            for table in ({"source": ["a", "b"], "target": values}, {"text": values}, {"translation": [{"source": "a", "target": each} for each in values]}):
                with self.subTest(table), self.assertRaisesRegex(pyhadal.Refusal, "row 1 is not a source and a target, and no text"):
                    pyhadal.prepare(table, out=self.path("none"))
        for frame in (pandas.DataFrame([["a", "b", "c"]], columns=["de", "en", "de"]), pandas.DataFrame({"text": ["a"]})):
            with self.assertRaisesRegex(pyhadal.Refusal, "needs the columns de and en, each once; there are "):
                pyhadal.prepare(frame, direction="de-en", out=self.path("none"))
        with self.assertRaisesRegex(pyhadal.Refusal, "text.de is a file, and a list holds texts; give files as"):
            pyhadal.prepare([self.path("text.de"), self.path("text.en")], out=self.path("none"))
        with self.assertRaisesRegex(pyhadal.Refusal, "not expected: .*did you mean --vocab-size"):
            pyhadal.prepare(PAIRS, out=self.path("none"), vocab_sizee=100)
        with self.assertRaisesRegex(pyhadal.Refusal, "data/train.json already exists"):
            pyhadal.prepare(PAIRS, out=self.corpus.path, vocab_size=100)

    def test_a_run_that_has_ended(self):
        self.assertEqual(list(self.run_.metrics["step"]), list(range(1, 11)))
        self.assertEqual(self.run_.status(), pyhadal.Status("finished", 10, 10, "all steps done"))
        self.assertEqual([(width, step, numbers["nll"]) for width, step, numbers in self.tracked if "nll" in numbers],
                         [(32, row.step, row.nll) for row in self.run_.metrics.itertuples()])
        self.assertFalse(self.failed)
        for picture, word in ((self.run_.plot(), "validation"), (self.run_.depth_map(), "Gradient of the parameters")):
            self.assertIn(word, picture._repr_svg_())
        self.assertIn("<html", Path(self.run_.report(self.path("page.html"))).read_text("utf-8"))
        self.assertEqual(sum(each.numel() for each in self.run_.model().parameters()), self.run_._events["run"][0]["parameters"])
        with contextlib.closing(pyhadal.Run(self.run_.checkpoints["path"].iloc[-1])) as checkpoint:
            wanted = checkpoint.translate(["eins"])
            with contextlib.closing(pickle.loads(pickle.dumps(checkpoint))) as other:  # of a run whose program is alive
                self.assertEqual(other.translate(["eins"]), wanted)

    def call_one_program(self, run, ask, wanted):
        """Calls ask(place) 1,000 times: the answers are wanted[place], and come from one program that does not grow. Returns its service."""
        service, = run._services.values()
        memory = lambda: int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{service._process.pid}/status").read_text())[1])
        before = None
        for call in range(1000):
            place = call * 7 % len(wanted)
            self.assertEqual(ask(place), wanted[place])
            before = memory() if call == 99 else before
        self.assertEqual(list(run._services.values()), [service])
        self.assertLess(memory() - before, 1024)  # KiB
        return service

    def test_many_calls_of_one_program(self):
        sources = [pair[0] for pair in PAIRS[:150]] + ["", "eins"]
        with tempfile.NamedTemporaryFile("w", suffix=".de") as file:
            file.writelines(source + "\n" for source in sources)
            file.flush()
            wanted = subprocess.run([program.find(), "translate", self.run_.path, "-i", file.name, "--max-len-b", "9"],
                                    capture_output=True, text=True).stdout.splitlines()
        self.assertEqual(self.run_.translate(sources, max_len_b=9), wanted)
        service = self.call_one_program(self.run_, lambda place: self.run_.translate(sources[place:place + 1], max_len_b=9)[0], wanted)
        with self.assertRaisesRegex(pyhadal.Refusal, r"^text 70 has \d+ tokens, more than 63; that is the model's limit"):
            self.run_.translate([*["eins"] * 70, "eins " * 100], max_len_b=9)
        self.assertFalse(service.alive)
        self.assertEqual(self.run_.translate(["eins"], max_len_b=9), wanted[-1:])
        service, = self.run_._services.values()
        with mock.patch.object(service, "_ask_batch", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.run_.translate(["eins"], max_len_b=9)
        self.assertFalse(service.alive, "it would answer the next call with what this one asked for")
        with self.assertRaisesRegex(pyhadal.Refusal, "text 1 is no str: None"):
            self.run_.translate(["eins", None])
        with self.assertRaisesRegex(pyhadal.Refusal, "out is of the command alone"):  # the answers would never come
            self.run_.translate(["eins"], out=self.path("out"))
        with self.assertRaisesRegex(pyhadal.Refusal, "text 0 has a line end"):
            self.run_.translate(["a\nb"])
        with self.assertRaisesRegex(pyhadal.Refusal, "'eins' is one text; give a list"):
            self.run_.translate("eins")

    def test_scores_are_those_of_files(self):
        sources, targets = map(list, zip(*PAIRS[:100]))
        for name, lines in (("s", sources), ("t", targets)):
            Path(self.path(name)).write_text("".join(line + "\n" for line in lines), "utf-8")
        shown = program.run(["score", self.run_.path, "--source", self.path("s"), "--target", self.path("t")])
        for _ in range(2):
            frame = self.run_.score(iter(targets), iter(sources))
            self.assertEqual([f"{row.log_probability:.6f}\t{row.tokens}" for row in frame.itertuples()], shown.splitlines())
        with self.assertRaisesRegex(pyhadal.Refusal, "99 sources and 100 targets; give as many"):
            self.run_.score(targets, sources[1:])
        best = self.run_.hypotheses(sources[:2], nbest=2)
        self.assertEqual([len(found) for found in best], [2, 2])
        penalty = len(best[0][0].tokens) ** pyhadal.Config(self.run_.path).decode.length_penalty
        self.assertAlmostEqual(best[0][0].score * penalty, sum(best[0][0].log_probabilities), places=4)
        texts = pyhadal.prepare(targets, out=self.path("texts_alone"), vocab_size=100)
        fields = {**SMALL, "model.encoder_layers": 0, "stop.steps": 2, "validation.every_steps": 0}
        run = pyhadal.train(pyhadal.Config(fields), texts, run_dir=self.path("language_model"), progress=False)
        self.addCleanup(run.close)
        shown = program.run(["score", run.path, "--target", self.path("t")])
        self.assertEqual([f"{row.log_probability:.6f}\t{row.tokens}" for row in run.score(targets).itertuples()], shown.splitlines())
        with self.assertRaisesRegex(pyhadal.Refusal, "is a language model and needs no --source"):
            run.score(targets, sources)
        drawn = run.sample(["one", ""], count=2, max_len=5)
        self.assertEqual([len(found) for found in drawn], [2, 2])
        self.assertTrue(all(text.startswith("one") for text in drawn[0]), drawn)

    def test_vectors_of_an_encoder_alone(self):
        corpus = pyhadal.prepare([target for _, target in PAIRS], out=self.path("masked"), vocab_size=100, mask_token=True)
        fields = {**SMALL, "model.decoder_layers": 0, "model.label_smoothing": 0.0, "stop.steps": 2, "validation.every_steps": 0}
        run = pyhadal.train(pyhadal.Config("masked_language_model/base", fields), corpus, run_dir=self.path("encoder"), progress=False)
        self.addCleanup(run.close)
        texts = [target for _, target in PAIRS[:150]] + ["", "one"]
        Path(self.path("texts")).write_text("".join(text + "\n" for text in texts), "utf-8")
        program.run(["embed", run.path, "--input", self.path("texts"), "--out", self.path("texts.npy")])
        vectors = run.embed(texts)
        self.assertEqual((vectors.shape, vectors.dtype, run.embed([]).shape), ((152, 32), np.float32, (0, 32)))
        np.testing.assert_array_equal(vectors, np.load(self.path("texts.npy")))  # the same bits
        self.call_one_program(run, lambda place: run.embed(texts[place:place + 1])[0].tolist(), vectors.tolist())
        with self.assertRaisesRegex(pyhadal.Refusal, r"^text 70 has \d+ tokens, more than 63, the limit of the model"):
            run.embed([*["one"] * 70, "one " * 100])

    def test_an_interrupt_saves_and_the_same_call_goes_on(self):
        def interrupt():
            with self.assertRaisesRegex(pyhadal.JobError, "endless is in use by another attempt"):
                jobs.train(pyhadal.Config(ENDLESS), self.corpus, run_dir=self.path("endless"), progress=False)
            self.assertEqual(pyhadal.Run(self.path("endless")).status().state, "running")
            raise KeyboardInterrupt

        with self.assertRaisesRegex(KeyboardInterrupt, "saved; the same call resumes it"):
            self.train_until("endless", interrupt, ranks=2)
        saved = pyhadal.Run(self.path("endless")).status()
        self.assertEqual(saved.state, "saved")
        run = pyhadal.train(pyhadal.Config(ENDLESS, {"stop.steps": saved.step + 2}), self.corpus, run_dir=self.path("endless"))
        self.assertEqual(list(run.metrics["step"]), list(range(1, saved.step + 3)))
        self.assertEqual(run.status().state, "finished")

    def test_faults_are_one_error_in_the_programs_words(self):
        with self.assertRaisesRegex(pyhadal.JobError, r"^model.heads = 7 is not allowed; it must divide model.d_model = 32\n  config:") as caught:
            pyhadal.train(pyhadal.Config(SMALL, {"model.heads": 7}), self.corpus, run_dir=self.path("bad"), ranks=2)
        self.assertEqual(caught.exception.exit_code, 2)
        self.assertIn("model.heads = 7 is not allowed", caught.exception.output)
        with self.assertRaisesRegex(pyhadal.Refusal, "ranks = 0 is not allowed"):
            pyhadal.train(pyhadal.Config(SMALL), self.corpus, run_dir=self.path("bad"), ranks=0)
        found = program.failure("train", "\r\n".join(["-" * 74, "mpirun has detected", "", "an attempt", "-" * 74, ""]), 1)
        self.assertEqual(str(found), "hadal train ended with exit code 1: mpirun has detected\n\nan attempt")
        self.assertEqual(str(program.failure("train", "-", 1)), "hadal train ended with exit code 1")
        killed = program.failure("train", "the last line", -9)
        self.assertEqual((str(killed), killed.exit_code), ("hadal train ended by signal 9: the last line", 1))
        with mock.patch.dict(os.environ, HADAL="/usr/bin/env"):  # all programs that it starts use this Python
            os.environ.pop("HADAL_PYTHON", None)
            self.assertIn(f"HADAL_PYTHON={sys.executable}\n".encode(), program.start([], stdout=subprocess.PIPE).communicate()[0])
        with self.assertRaisesRegex(pyhadal.JobError, "cannot make directory /proc/x"):
            pyhadal.train(pyhadal.Config(SMALL), self.corpus, run_dir="/proc/x")

        def kill():
            owner = Path(self.path("killed"), "checkpoints", "attempt").read_text().splitlines()
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(owner[3].split()[0]), signal.SIGKILL)

        with self.assertRaisesRegex(pyhadal.JobError, "the job crashed") as caught:
            self.train_until("killed", kill, ranks=2, tries=1)
        self.assertEqual((caught.exception.exit_code, pyhadal.Run(self.path("killed")).status().state), (6, "failed"))

    def test_a_killed_notebook_leaves_no_process(self):
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what loses its parent becomes this process's child
        self.addCleanup(ctypes.CDLL(None).prctl, 36, 0)
        self.run_.close()  # no other child
        config = self.path("endless.textproto")
        pyhadal.Config(ENDLESS, {"stop.steps": 20_000}).write(config)  # not endless: it would be left over where this fails
        kernel = subprocess.Popen([sys.executable, "-c", textwrap.dedent(f"""
            import pyhadal, os, signal
            from pyhadal import jobs
            poll = jobs.Follower.poll
            def kill(follower):
                if any(event["event"] == "step" for event in poll(follower)):
                    os.kill(os.getpid(), signal.SIGKILL)
                return []
            jobs.Follower.poll = kill
            pyhadal.Run({self.run_.path!r}).translate(["eins"])
            pyhadal.train({config!r}, {self.corpus.path!r}, run_dir={self.path("orphan")!r}, ranks=2)""")])
        self.assertEqual(kernel.wait(), -signal.SIGKILL)
        with self.assertRaises(ChildProcessError):
            while True:
                os.wait()
        self.assertEqual(pyhadal.Run(self.path("orphan")).status().state, "saved")

    def test_plan_and_compare_are_frames(self):
        plan = pyhadal.plan(pyhadal.Config(SMALL), "h100_80g_8", vocabulary=100)
        self.assertEqual((len(plan.memory), plan.summary["cluster.nodes"]), (8, 1))
        self.assertIn("--set pipeline.stages=", plan.layouts["arguments"][0])
        axes = {"method": {"post": "method/post_ln", "pre": {"model.residual.method": "pre_ln"}}, "seed": [1, 2]}
        failing = Path(self.path("grid/runs/method=pre,seed=2"))
        failing.mkdir(parents=True)
        (failing / "checkpoints").touch()
        frame = pyhadal.compare(pyhadal.Config(SMALL), axes, out=self.path("grid"), corpus=self.corpus, progress=False, set="data.max_left_out=0.5")
        self.assertEqual(frame[["method", "seed", "state", "steps"]].fillna(0).values.tolist(),
                         [["post", "1", "done", 10], ["post", "2", "done", 10], ["pre", "1", "done", 10], ["pre", "2", "failed", 0]])
        self.assertEqual(pyhadal.Run(frame["directory"][2]).config["model.residual.method"], "pre_ln")

    def test_slurm(self):
        programs = self.path("programs")
        os.mkdir(programs)
        for name, text in (("sbatch", 'printf "%s\\n" "$HADAL" "$@" > "$0.words"; echo "42;cluster"'),
                           ("squeue", f'echo "7|RUNNING|/other"; echo "42|PENDING|{os.path.realpath(self.run_.path)}"')):
            Path(programs, name).write_text(f"#!/bin/sh\n{text}\n")
            os.chmod(Path(programs, name), stat.S_IRWXU)
        with mock.patch.dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}"):
            job = pyhadal.submit(pyhadal.Config(SMALL), self.corpus, run_dir=self.path("far"), nodes=2, time="1:00:00", cpus_per_task=4,
                                 train={"device": "cpu"})
            words = Path(programs, "sbatch.words").read_text().splitlines()
            self.assertEqual(job, "42")
            self.assertEqual(words, [program.find(), "--parsable", f"--comment={self.path('far')}", "--nodes", "2", "--ntasks-per-node", "1",
                                     "--time", "1:00:00", "--cpus-per-task", "4", str(TREE / "launch/slurm/train.sbatch"),
                                     self.path("far.textproto"), "--run-dir", self.path("far"), "--device", "cpu"])
            self.assertEqual(pyhadal.Config(self.path("far.textproto")).data.train, self.corpus.train)
            pyhadal.Run(self.run_.path).submit(nodes=3)
            words = Path(programs, "sbatch.words").read_text().splitlines()
            self.assertEqual((words[2:5], words[-3:]), ([f"--comment={self.run_.path}", "--nodes", "3"], [self.run_.path + ".textproto", "--run-dir", self.run_.path]))
            self.assertNotIn("--time", words)
            run = pyhadal.Run(os.path.relpath(self.run_.path))
            status = run.status()
            self.assertEqual((status.state, status.job), ("queued", "42"))
            before = os.getcwd()
            self.addCleanup(os.chdir, before)
            os.chdir(os.path.dirname(self.run_.path))
            run = pyhadal.Run(os.path.basename(self.run_.path))
            os.chdir("/")
            for ask in (run.status, lambda: run.checkpoints):
                with self.assertRaisesRegex(pyhadal.Refusal, "no such file; is .* a run directory"):
                    ask()
            os.chdir(before)
            Path(programs, "sbatch").write_text("#!/bin/sh\necho sbatch: no partition >&2; exit 3\n")
            with self.assertRaisesRegex(pyhadal.Refusal, "sbatch: no partition") as caught:
                pyhadal.Run(self.run_.path).submit()
            self.assertEqual(caught.exception.exit_code, 1)


class FollowTest(unittest.TestCase):
    def test_each_line_is_sent_once_also_when_a_resume_replaces_the_file(self):
        step = lambda number, value: {"event": "step", "step": number, "nll": value, "skipped": False, "loss": None}
        first = [{"event": "run", "attempt": "a"}, step(1, 3.0), step(2, 2.5), {"event": "validation", "step": 2, "nll": 2.75}]
        second = [*first[:2], {"event": "run", "attempt": "b"}, step(2, 2.25), step(3, 2.0)]
        with tempfile.TemporaryDirectory() as scratch:
            run, sent = pyhadal.Run(make_run(scratch, first, unfinished='{"event":"st')), []
            later = os.path.join(make_run(os.path.join(scratch, "later"), second), "metrics.jsonl")

            def replace():  # of a follower that was slow
                with open(run.metrics_path, "a", encoding="utf-8") as file:
                    file.write('ep","step":3,"nll":2.125}\n')
                return os.replace(later, run.metrics_path) is None

            turns = iter([lambda: False, replace])
            fake = {"json": lambda _: (lambda numbers, step: sent.append((step, numbers)), sent.append)}
            with mock.patch.dict(TRACKERS, fake), contextlib.closing(Tracker("json", scratch)) as tracker:
                follow(run.metrics_path, tracker, lambda: next(turns)(), wait=0)
            failed = True  # without an end
            self.assertEqual(sent, [(1, {"nll": 3.0}), (2, {"nll": 2.5}), (2, {"valid/nll": 2.75}), (3, {"nll": 2.125}), (2, {"nll": 2.25}), (3, {"nll": 2.0}), failed])
            with mock.patch.dict(TRACKERS, fake), mock.patch.object(pyhadal.Run, "status", side_effect=AssertionError("reads the whole file")), \
                    contextlib.redirect_stdout(io.StringIO()) as said:
                run_follow(argparse.Namespace(run=scratch, to="json"))
            self.assertEqual(said.getvalue(), f"sent 3 lines of {scratch} to json\n")
            with self.assertRaisesRegex(pyhadal.Refusal, "json is no tracker; there are mlflow, wandb"):
                Tracker("json", scratch)
            self.assertEqual(sent[7:], [(1, {"nll": 3.0}), (2, {"nll": 2.25}), (3, {"nll": 2.0}), failed])

    def test_a_tracker_leaves_a_run_of_the_users_own_open(self):
        """As MLflow 3.17 and W&B 0.31 ask for it: the one refuses a second run that is not nested, the other ends the first."""
        with tempfile.TemporaryDirectory() as scratch, mock.patch.dict(sys.modules, mlflow=mock.MagicMock(), wandb=mock.MagicMock()):
            os.mkdir(os.path.join(scratch, "run"))
            Path(scratch, "run", "config.resolved.textproto").write_text("model { d_model: 8 }", "utf-8")
            Path(scratch, "run", "metrics.jsonl").touch()
            for active in (None, "mine"):
                sys.modules["mlflow"].active_run.return_value = active
                TRACKERS["mlflow"](pyhadal.Run(os.path.join(scratch, "run")))[1](True)
                sys.modules["mlflow"].start_run.assert_called_with(run_name="run", nested=active is not None)
            sys.modules["mlflow"].end_run.assert_called_with("FAILED")
            sys.modules["mlflow"].log_params.assert_called_with({"model.d_model": "8"})
            TRACKERS["mlflow"](pyhadal.Run(os.path.join(scratch, "run")))[1](False)
            sys.modules["mlflow"].end_run.assert_called_with("FINISHED")
            with mock.patch.dict(os.environ, WANDB_PROJECT="mine"):
                TRACKERS["wandb"](pyhadal.Run(os.path.join(scratch, "run")))[1](True)
            sys.modules["wandb"].init.assert_called_with(project="mine", name="run", config={"model.d_model": 8}, reinit="create_new")
            sys.modules["wandb"].init().finish.assert_called_with(exit_code=1)
            for name in ("mlflow", "wandb"):  # each number at its step
                TRACKERS[name](pyhadal.Run(os.path.join(scratch, "run")))[0]({"nll": 2.0}, 3)
            sys.modules["mlflow"].log_metrics.assert_called_with({"nll": 2.0}, step=3)
            sys.modules["wandb"].init().log.assert_called_with({"nll": 2.0, "step": 3})
            sys.modules["wandb"].init().define_metric.assert_called_with("*", step_metric="step")

    def test_what_watches_a_job_gets_its_events(self):
        with mock.patch.dict(sys.modules, {"tqdm": mock.MagicMock(), "tqdm.auto": mock.MagicMock()}):
            bar, shown = jobs._Bar(), sys.modules["tqdm.auto"].tqdm.return_value
        bar.take([{"event": "run", "total_steps": 9, "first_step": 5}])
        self.assertEqual((shown.total, shown.n, shown.initial), (9, 4, 4))
        bar.take([{"event": "step", "step": 5, "nll": 2.0, "tokens_per_second": 1234.6}, {"event": "validation", "nll": None},
                  {"event": "diagnosis", "step": 5, "text": "it"}])
        shown.set_postfix.assert_called_with({"nll": "2.000", "tok/s": "1235", "valid nll": "not finite"})
        shown.write.assert_called_with("step 5: it")
        job, failing, other = jobs._Job.__new__(jobs._Job), mock.MagicMock(), mock.MagicMock()
        failing.take.side_effect, job._watchers = pyhadal.Refusal("it is gone"), [failing, other]
        with self.assertWarnsRegex(UserWarning, "it is gone; the run continues without it"):
            job._report(["event"])
        other.take.assert_called_with(["event"])
        self.assertEqual((shown.n, job._watchers), (5, [other]))


class PageTest(unittest.TestCase):
    def test_the_page_is_that_of_the_docstrings(self):
        self.assertEqual((TREE / "docs/python.md").read_text("utf-8"), document.page(), "python3 -m pyhadal.document > docs/python.md")


if __name__ == "__main__":
    unittest.main()
