"""How hadal starts Python, what becomes of both when one ends, and what a user reads of errors. The child is a script of this test, or
this Python with hadal_torch."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

from hadal_torch.huggingface import write_huggingface
from hadal_torch.plain import write_plain
from hadal_torch.tensors import read_safetensors, write_safetensors
from random_models import plain_model

HADAL = os.environ["HADAL"]
PACKAGES = os.environ["PYTHONPATH"]


class ChildTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = directory.name
        os.mkdir(self.path("model"))
        write_huggingface(plain_model(), self.path("model"))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def environment(self, python=sys.executable):
        return {**os.environ, "HADAL_PYTHON": python, "PYTHONPATH": PACKAGES}

    def ran(self, *words, python=sys.executable, program=(HADAL,)):
        return subprocess.run([*program, *words], cwd=self.folder, env=self.environment(python), capture_output=True, text=True, check=False)

    def assert_refused(self, done, code, pattern):
        self.assertEqual(done.returncode, code, done)
        self.assertRegex(done.stderr, rf"\Ahadal checkpoint (im|ex)port: [^\n]*{pattern}[^\n]*\n\Z")
        self.assertNotIn(".tmp.", done.stderr)
        self.assertFalse([name for name in os.listdir(self.folder) if ".tmp." in name or ".partial" in name])

    def script(self, text, interpreter=sys.executable):
        path = self.path("python")
        Path(path).write_text(f"#!{interpreter}\n{text}", "utf-8")
        os.chmod(path, 0o755)
        return path

    def test_paths_are_bytes_in_every_locale(self):
        python = self.script("echo utf8=$PYTHONUTF8\n", "/bin/sh")
        self.assertEqual(self.ran("make-corpus", python=python, program=("env", "PYTHONUTF8=0", HADAL)).stdout, "utf8=1\n")

    def test_the_working_folder_is_not_on_the_path(self):
        for name in ("json", "numpy", "argparse", "tempfile", "resource", "struct", "hadal_torch", "pyhadal"):
            Path(self.path(name + ".py")).write_text(f"open({self.path('executed')!r}, 'a').write({name!r})\n", "utf-8")
        self.assertEqual(self.ran("checkpoint", "import", "model", "-o", "a").stderr, "")
        self.assertEqual(self.ran("make-corpus", "-o", "corpus", "--pairs", "1").stderr, "")
        for name in ("hadal_torch", "pyhadal"):  # the two by hand: found in PYTHONPATH behind the working folder
            os.remove(self.path(name + ".py"))
        done = self.ran("import", "model", "--out", "b.safetensors", program=(sys.executable, "-m", "hadal_torch"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.ran("make-corpus", "-o", "corpus", "--pairs", "1", "--overwrite", program=(sys.executable, "-m", "pyhadal"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertFalse(os.path.exists(self.path("executed")))

    def test_what_a_child_inherits(self):
        child = self.script("import os, signal\nprint(os.environ['HADAL'], signal.getsignal(signal.SIGHUP).name, os.environ['PYTHONPATH'])\n")
        environment = {**self.environment(child), "HADAL": "another", "PYTHONPATH": ":/first::/second"}
        words = ["nohup", HADAL, "checkpoint", "import", "model", "-o", "made"]
        printed = subprocess.run(words, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout
        self.assertRegex(printed, rf"^{re.escape(os.path.realpath(HADAL))} SIG_IGN [^ ]+[^:]:/first:/second\n")

    def started(self, signals=1):
        """`hadal checkpoint import` with a child that writes so many signals into a pipe and ends, and the pipe."""
        os.mkfifo(self.path("alive"))
        child = self.script("import signal\nends = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}\n"
                            "masked = signal.pthread_sigmask(signal.SIG_BLOCK, ends)\nwith open('alive', 'w') as pipe:\n"
                            "    print('begun', masked & ends, file=pipe, flush=True)\n"
                            f"    for _ in range({signals}):\n        print(signal.sigwait(ends).name, file=pipe, flush=True)\n")
        hadal = subprocess.Popen([HADAL, "checkpoint", "import", "model", "-o", "made"], cwd=self.folder, env=self.environment(child))
        self.addCleanup(hadal.kill)
        pipe = open(self.path("alive"), encoding="ascii")
        self.addCleanup(pipe.close)
        self.assertEqual(pipe.readline(), "begun set()\n")
        self.assertTrue([name for name in os.listdir(self.folder) if name.startswith("made.partial")])
        return hadal, pipe

    def test_a_signal_ends_both_and_leaves_nothing(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number):
                hadal, pipe = self.started()
                hadal.send_signal(number)
                self.assertEqual(pipe.read(), number.name + "\n")
                self.assertEqual(hadal.wait(), -number)
                self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("made")])
                os.remove(self.path("alive"))

    def test_a_second_interrupt_kills_the_child(self):
        hadal, pipe = self.started(signals=2)
        hadal.send_signal(signal.SIGINT)
        self.assertEqual(pipe.readline(), "SIGINT\n")
        hadal.send_signal(signal.SIGINT)
        self.assertEqual(pipe.read(), "")
        self.assertEqual(hadal.wait(), -signal.SIGINT)

    def test_a_child_whose_parent_is_killed_is_ended(self):
        hadal, pipe = self.started()
        hadal.kill()
        self.assertEqual(pipe.read(), "SIGTERM\n")
        hadal.wait()

    def test_python_removes_its_temporary_names(self):
        write_plain(self.path("m.safetensors"), plain_model())
        signalled = ("import os, signal, sys\nfrom hadal_torch import __main__, huggingface\n"
                     "huggingface.write_huggingface = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\nsys.exit(__main__.main())\n")
        done = self.ran("-c", signalled, "export", "m.safetensors", "--format", "huggingface", "--out", "made", program=(sys.executable,))
        self.assertEqual((done.returncode, done.stderr), (128 + signal.SIGTERM, ""))
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("made")])

    def test_a_target_that_exists(self):
        os.makedirs(self.path("made", "x"))
        self.assert_refused(self.ran("checkpoint", "import", "model", "-o", "made"), 2, "made already exists")
        write_plain(self.path("m.safetensors"), plain_model())
        self.assert_refused(self.ran("export", "m.safetensors", "--format", "huggingface", "--out", "made",
                                     program=(sys.executable, "-m", "hadal_torch")), 2, "made already exists")
        late = self.script("import os, shutil, sys\nos.makedirs('late/x')\nfor name in ('m.safetensors', 'm.json', 'vocabulary.txt'):\n"
                           "    shutil.copy(name, os.path.join(os.path.dirname(sys.argv[-1]), name.replace('m.', 'model.')))\n")
        self.assert_refused(self.ran("checkpoint", "import", "model", "-o", "late", python=late), 2, "late already exists")

    def test_errors_are_one_line_with_the_exit_codes_of_hadal(self):
        self.assert_refused(self.ran("checkpoint", "import", "model", "-o", "made", "--dictionary", "x"), 2, "--dictionary is for")
        weights = read_safetensors(self.path("model", "model.safetensors"))
        with open(self.path("model", "model.safetensors"), "r+b") as file:
            file.truncate(os.path.getsize(file.name) - 1)
        self.assert_refused(self.ran("checkpoint", "import", "model", "-o", "made"), 3, "model/model.safetensors")
        write_safetensors(self.path("model", "model.safetensors"), weights)
        config = json.loads(Path(self.path("model", "config.json")).read_text("utf-8"))
        Path(self.path("model", "config.json")).write_text(json.dumps({**config, "dropout": 7.0}), "utf-8")
        self.assert_refused(self.ran("checkpoint", "import", "model", "-o", "made"), 2, "model: .*dropout")
        failing = self.script("exit 7\n", "/bin/sh")
        done = self.ran("checkpoint", "import", "model", "-o", "made", python=failing)
        self.assertEqual((done.returncode, done.stderr), (1, ""))

    def test_missing_packages_are_named_before_any_work(self):
        bare = self.script(f'exec {sys.executable} -S "$@"\n', "/bin/sh")
        for form, package in (("fairseq", "torch"), ("ctranslate2", "ctranslate2"), ("huggingface", "numpy")):
            done = self.ran("checkpoint", "export", "no-such-run", "--format", form, "-o", "made", python=bare)
            self.assert_refused(done, 2, f"missing for .*{package}.*pip install")
        self.assert_refused(self.ran("checkpoint", "import", "model", "-o", "made", python=bare), 2, "numpy")
        reading = "import pyhadal\ntry:\n    pyhadal.read_metrics('m.jsonl')\nexcept pyhadal.Refusal as refusal:\n    print(refusal)\n"
        Path(self.path("m.jsonl")).write_text('{"event": "step", "step": 1}\n{"event": "st', "utf-8")
        self.assertRegex(self.ran("-c", reading, program=(bare,)).stdout, r"missing for .*pandas")
        done = self.ran("inspect", "similarity", "no-such-run", "no-such-corpus", python=bare)
        self.assertRegex(done.stderr, "^hadal inspect similarity: .*missing for .*matplotlib")

    def test_weights_that_are_not_finite(self):
        for value in (np.nan, np.inf):
            plain = plain_model()
            plain.weights["decoder.layers.1.fc1.weight"][3, 5] = value
            write_plain(self.path("m.safetensors"), plain)
            write_huggingface(plain, self.path("model"))
            for source in ("m.safetensors", "model"):
                words = "checkpoint", "import", source, "-o", "made"
                self.assert_refused(self.ran(*words), 2, f"{source}: decoder.layers.1.fc1.weight has {value} at element 53;.*--allow-nonfinite")
                self.assertEqual(self.ran(*words, "--allow-nonfinite").returncode, 0)
                for form in ((), ("--format", "huggingface")):
                    words = "checkpoint", "export", "made", "-o", "a.safetensors", *form
                    self.assert_refused(self.ran(*words), 2, f"made: decoder.layers.1.fc1.weight has {value} at element 53")
                    self.assertEqual(self.ran(*words, "--allow-nonfinite").returncode, 0)
                    for name in ("a.safetensors", "a.json"):
                        subprocess.run(["rm", "-rf", self.path(name)], check=True)
                subprocess.run(["rm", "-rf", self.path("made")], check=True)

    def test_an_export_writes_in_its_folder_alone(self):
        os.mkdir(self.path("in"))
        for name in ("../vocabulary.txt", "/tmp/vocabulary.txt", ""):
            write_plain(self.path("in", "m.safetensors"), plain_model())
            settings = self.path("in", "m.json")
            Path(settings).write_text(json.dumps({**json.loads(Path(settings).read_text("utf-8")), "vocabularies": [name]}), "utf-8")
            done = self.ran("export", "in/m.safetensors", "--format", "huggingface", "--out", "made", program=(sys.executable, "-m", "hadal_torch"))
            self.assert_refused(done, 2, "is no file of its folder")


if __name__ == "__main__":
    unittest.main(buffer=True)
