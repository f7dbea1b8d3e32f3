"""No output of a command replaces an input, a file of the user's or anything inside a checkpoint; links are not followed; one process writes.

The commands and their options are those of --help: an option that names an output and is not in OUTPUTS fails. ($HADAL: the program.)
"""
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HADAL = os.environ["HADAL"]
CHECKPOINT = "run/checkpoints/step_00000001"
SMALL = """
data { train: "data/train" }
model { encoder_layers: 1 decoder_layers: 1 d_model: 16 d_ff: 32 heads: 2 max_positions: 64 dropout: 0 }
batch { micro_batches: 1 source_tokens: 96 target_tokens: 96 }
learning_rate { peak: 1e-3 warmup_updates: 2 }
pipeline { threads: 1 }
stop { steps: 1 }
"""


class Case:
    """A command. `words`: with {} for the output; `name`: of the target; `files`: what it writes, with {} for the target;
    `lock`: what a process that writes there locks; `inputs`: targets that are inputs; `own`: a second run replaces its outputs."""

    def __init__(self, words, name, files, lock=None, inputs=(), own=False):
        self.words, self.name, self.files, self.lock, self.inputs, self.own = words, name, files.split(), lock, inputs, own


FOLDER, STAGED = "{}/.hadal.lock", "{}.partial/.hadal.lock"
TEXT = ["text/a.en", "text/a.de"]
OUTPUTS = {
    ("make-corpus", "--out"): Case("--out {} --pairs 5 --valid 0 --test 0", "made", "{}/train.de {}/train.en", FOLDER),
    ("prepare", "--out"): Case("--list texts --vocab-type word --vocab-size 0 --out {}", "corpus",
                               "{}/train.json {}/train.00000.shard {}/cleaning.json {}/vocabulary.txt", FOLDER),
    ("train", "--run-dir"): Case("small.textproto --run-dir {}", "other", ""),  # its owner: fault_test
    ("compare", "--out"): Case("grid --out {}", "compared", "{}/grid.json {}/comparison.html {}/comparison.md {}/comparison.json {}/tables",
                               FOLDER, own=True),
    ("sweep", "--out"): Case("layouts small.textproto --out {}", "swept", "{}/scaling.txt {}/scaling.html {}/scaling.json {}/scaling.md",
                             FOLDER, own=True),
    ("translate", "--out"): Case("run -i text/a.en --out {}", "out.de", "{} {}.partial", "{}.partial", TEXT[:1]),
    ("sample", "--out"): Case("lm -p text/a.en --max-len 9 --out {}", "out.txt", "{} {}.partial", "{}.partial", TEXT[:1]),
    ("embed", "--out"): Case("mlm -i text/a.en --out {}", "vectors.npy", "{}", inputs=TEXT[:1]),
    ("score", "--out"): Case("run -s text/a.en -t text/a.de --out {}", "out.score", "{} {}.partial", "{}.partial", TEXT),
    ("evaluate", "--out"): Case("run --list tests --max-len-b 5 --out {}", "evaluated",
                                "{}/test_sets.json {}/de-en.source {}/de-en.hypothesis {}/report.md {}/means.csv", FOLDER, own=True),
    ("checkpoint export", "--out"): Case("run --out {}", "exported.safetensors", "{} exported.json vocabulary.txt", STAGED),
    ("checkpoint import", "--out"): Case("given/model.safetensors --out {}", "imported", "{}", STAGED, ["run"]),
    ("checkpoint average", "--out"): Case("run --last 1 --out {}", "averaged", "{}", STAGED, ["run"]),
    ("inspect similarity", "--out"): Case("run data/train --out {}", "alike", "{}.json {}.html", own=True),
    ("curve", "--svg"): Case("run --svg {}", "curve.svg", "{}", inputs=["run/metrics.jsonl"], own=True),
    ("report", "--out"): Case("run --out {}", "page", "{}.html {}.json {}.md", own=True),
    ("simulate", "--svg"): Case("--stages 2 --svg {}", "simulated.svg", "{}", own=True),
    ("bench profile", "--out"): Case("small.textproto --rounds 1 --halvings 0 --out {}", "profile.textproto", "{}", inputs=["small.textproto"],
                                     own=True),
    ("doctor", "--run-dir"): Case("--file-mib 0.01 --message-mib 0.01 --run-dir {}", "examined", ""),
}
# Options whose descriptions speak of outputs, which name none. --trace writes into the run.
NO_OUTPUTS = {("translate", "--prefix"), ("translate", "--input"), ("translate", "--direction"), ("bench step", "--dropout"), ("train", "--trace"),
              ("bleu", "--input"), ("chrf", "--input"), ("wer", "--input"), ("evaluate", "--against"),
              ("plan", "--write-gb-per-second")}
NAMES_OUTPUT = re.compile(r"\b[Ww]rit|\b[Oo]utput|^File of|^Folder for|^Directory (for|of)|where metrics", re.ASCII)


def hadal(*words, **options):
    return subprocess.run([HADAL, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)


def help_entries(*command):
    """Yields (option, description) of options with a value, and ("", subcommand)."""
    part, entry = "", ""
    for line in [*hadal(*command, "--help").stdout.splitlines(), "End:"]:
        if re.match(r"\S.*:$", line) or re.match(r"  \S", line):
            if part == "Subcommands:" and entry:
                yield "", entry.split()[0]
            elif match := re.match(r"  (?:-\w,|-\w \S+, |-\w, )?(--[\w-]+) (?!Excludes|Needs)\S+(.*)", entry):
                yield match[1], match[2].split("  ")[-1].strip()
            part, entry = (line, "") if line[0] != " " else (part, line)
        else:
            entry += "  " + line.strip()


class Outputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.root = pathlib.Path(cls.scratch.name)
        cls.before = os.getcwd()
        os.chdir(cls.root)
        os.environ["HADAL_PYTHON"] = sys.executable
        os.mkdir("text")
        for language, word in ("de", "Haus"), ("en", "house"):
            pathlib.Path(f"text/a.{language}").write_text("".join(f"{word} {'x ' * (n % 3)}\n" for n in range(9)))
        for name, kind in ("texts", "train"), ("tests", "test"):
            pathlib.Path(name).write_text(f'text {{ direction: "de-en" {kind}: ["text/a.de", "text/a.en"] }}')
        pathlib.Path("small.textproto").write_text(SMALL)
        pathlib.Path("layouts").write_text("one 1\n")
        pathlib.Path("grid").write_text('base: "small.textproto" axes { name: "a" values { label: "b" } }')
        words = ["--vocab-type", "word", "--vocab-size", "0"]
        for command in (["prepare", "--train", "text/a.de", "text/a.en", "--out", "data", *words],
                        ["prepare", "--monolingual", "--train", "text/a.en", "--out", "lines", *words],
                        ["prepare", "--monolingual", "--mask-token", "--train", "text/a.en", "--out", "masked", *words],
                        ["train", "small.textproto", "--run-dir", "run"],
                        ["train", "small.textproto", "--run-dir", "mlm", "--set", "data.train=masked/train", "--set", "model.decoder_layers=0",
                         "--set", "model.label_smoothing=0"],
                        ["train", "small.textproto", "--run-dir", "lm", "--set", "data.train=lines/train", "--set", "model.encoder_layers=0",
                         "--set", "model.label_smoothing=0"],
                        ["checkpoint", "export", "run", "--out", "given/model.safetensors"]):
            done = hadal(*command)
            if done.returncode:
                raise AssertionError(f"hadal {' '.join(command)}: {done.stderr}")

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.before)

    def run_case(self, command, case, target):
        return hadal(*command.split(), *(word.replace("{}", target) for word in case.words.split()))

    def refused(self, command, case, target, kind):
        """Runs the command, which must refuse the target by one line that names it, and change nothing."""
        before = {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in self.root.rglob("*") if not path.is_dir()}
        done = self.run_case(command, case, target)
        self.assertIn(done.returncode, (1, 2), f"hadal {command} accepts {kind} {target}: {done.stdout}{done.stderr}")
        names = [os.path.basename(file.replace("{}", target)) for file in ["{}", *case.files]]
        self.assertTrue(any(name in done.stderr for name in names), done.stderr)
        after = {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in self.root.rglob("*") if not path.is_dir()}
        self.assertEqual(after, before, f"hadal {command} has changed something though it refuses {kind} {target}")

    def cases(self, condition=lambda case: True):
        """Yields (command, case), each without what another test has left in its place."""
        for (command, _), case in OUTPUTS.items():
            for path in map(pathlib.Path, [case.name, case.name + ".partial", *(file.replace("{}", case.name) for file in case.files)]):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                path.unlink(missing_ok=True)
            if condition(case):
                yield command, case

    def test_every_output_of_help_is_in_the_table(self):
        found = set()
        pending = [()]
        while pending:
            command = pending.pop()
            for option, text in help_entries(*command):
                if not option:
                    pending.append((*command, text))
                elif option in ("--out", "--svg", "--run-dir") or NAMES_OUTPUT.search(text):
                    found.add((" ".join(command), option))
        self.assertEqual(found - NO_OUTPUTS, set(OUTPUTS))

    def test_a_file_of_the_users_and_a_link_stay(self):
        for command, case in self.cases():
            with self.subTest(command=command):
                for file in case.files:
                    path = pathlib.Path(file.replace("{}", case.name))
                    path.parent.mkdir(exist_ok=True)
                    path.write_text("mine\n")
                    self.refused(command, case, case.name, f"a user's {path} at")
                    path.unlink()
                    pathlib.Path("precious").write_text("mine\n")
                    path.symlink_to(os.path.abspath("precious"))
                    self.refused(command, case, case.name, f"a link {path} at")
                    path.unlink()

    def test_nothing_is_written_into_a_checkpoint_or_over_a_runs_files(self):
        for command, case in self.cases():
            with self.subTest(command=command):
                for target in (f"{CHECKPOINT}/{case.name}", f"run/checkpoints/{case.name}", f"run/logs/{case.name}"):
                    self.refused(command, case, target, "a place in a run,")

    def test_inputs_stay(self):
        for command, case in self.cases(lambda case: case.inputs):
            with self.subTest(command=command):
                for target in case.inputs:
                    self.refused(command, case, target, "its input")
        shutil.copytree("text", "both")
        for name in "train.00000.shard", "cleaning.json", "train.json":  # texts inside --out
            shutil.copy("text/a.en", f"both/{name}")
            pathlib.Path("lists").write_text(f'text {{ direction: "de-en" train: ["text/a.de", "both/{name}"] }}')
            case = Case("--list lists --vocab-type word --vocab-size 0 --overwrite --out {}", "both", "")
            self.refused("prepare", case, "both", "a text in")
            os.remove(f"both/{name}")
        shutil.copy("texts", "both/cleaning.json")
        case = Case("--list both/cleaning.json --vocab-type word --vocab-size 0 --overwrite --out {}", "both", "")
        self.refused("prepare", case, "both", "the list in")
        shutil.rmtree("both")

    def test_one_process_writes(self):
        for command, case in self.cases(lambda case: case.lock):
            with self.subTest(command=command):
                lock = pathlib.Path(case.lock.replace("{}", case.name))
                lock.parent.mkdir(exist_ok=True)
                with open(lock, "w") as held:
                    fcntl.flock(held, fcntl.LOCK_EX)
                    self.refused(command, case, case.name, "a held")
                lock.unlink()
                if lock.parent.name.endswith(".partial"):
                    lock.parent.rmdir()

    def test_what_is_free_is_written_and_a_commands_own_is_replaced(self):
        for command, case in self.cases(lambda case: case.files):
            with self.subTest(command=command):
                done = self.run_case(command, case, case.name)
                self.assertEqual(done.returncode, 0, f"hadal {command}: {done.stdout}{done.stderr}")
                for file in case.files:
                    written = file.endswith(".partial") or os.path.exists(file.replace("{}", case.name))
                    self.assertTrue(written, f"hadal {command} has not written {file}")
                if case.own:
                    done = self.run_case(command, case, case.name)
                    self.assertEqual(done.returncode, 0, f"hadal {command}, again: {done.stdout}{done.stderr}")
                else:
                    self.refused(command, case, case.name, "its own")
                self.assertEqual([*self.root.rglob(".hadal.*"), *self.root.rglob("*.partial")], [], f"hadal {command} leaves temporary files")


if __name__ == "__main__":
    unittest.main()
