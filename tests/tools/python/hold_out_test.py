"""examples/hold_out.py: one file of both sides as training, validation and test text; nothing held out is trained on."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "examples/hold_out.py"
PAIRS = [(f"source {i % 40}", f"target {i}") for i in range(50)] + [("", "no source"), ("no target", "")]
TMX = ('<?xml version="1.0"?><tmx version="1.4"><header/><body>{}</body></tmx>', '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>',
       '<tu><tuv xml:lang="DE-at"><seg><bpt i="1">&lt;b></bpt>{}<ept i="1"/></seg></tuv><tuv lang="en"><seg>{}</seg></tuv></tu>')


class HoldOut(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def divide(self, name, text, encoding="utf-8", valid=5):
        (self.folder / name).write_text(text, encoding=encoding)
        command = [sys.executable, SCRIPT, self.folder / name, "--direction", "de-en", "--valid", str(valid), "--test", "4", "--out"]
        return subprocess.run([*command, self.folder / "out"], capture_output=True, text=True)

    def test_formats_give_the_same_split(self):
        tmx = TMX[0].format("".join(TMX[2].format(*pair) for pair in PAIRS) + TMX[1].format("de", "alone"))
        texts = {"a.tmx": (tmx, "utf-8"), "b.tmx": (tmx.replace('"1.0"', '"1.0" encoding="UTF-16"', 1), "utf-16"),
                 "c.jsonl": ("".join(json.dumps({"translation": {"de": de, "en": en}}) + "\n" for de, en in PAIRS), "utf-8"),
                 "d.tsv": ("".join(f"{de}\t{en}\n" for de, en in PAIRS), "utf-8-sig")}
        for name, (text, encoding) in texts.items():
            with self.subTest(name):
                outcome = self.divide(name, text, encoding)
                self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
                sides = {path.name: path.read_text(encoding="utf-8").splitlines() for path in (self.folder / "out").iterdir()}
                pairs = {split: list(zip(sides[f"{split}.de"], sides[f"{split}.en"])) for split in ("train", "valid", "test")}
                self.assertEqual((len(pairs["valid"]), len(pairs["test"])), (5, 4))
                self.assertLessEqual(set(sum(pairs.values(), [])), set(PAIRS[:50]))
                self.assertFalse({de for de, _ in pairs["train"]} & {de for de, _ in pairs["valid"] + pairs["test"]})
                self.assertEqual(len({de for kept in pairs.values() for de, _ in kept}), 40)
                self.assertRegex(self.divide(name, text, encoding).stderr, "File exists: .*train.de")
                for path in (self.folder / "out").iterdir():
                    path.unlink()

    def test_what_cannot_be_divided_is_named(self):
        self.assertRegex(self.divide("a.tsv", "ein\tone\n").stderr, "has 1 sources with a translation; --valid and --test take 9")
        self.assertRegex(self.divide("a.txt", "plain\n").stderr, "a.txt:1: neither JSON nor two columns")
        self.assertRegex(self.divide("a.tmx", "<tmx><body>").stderr, r"\Ahold_out: no element found")


if __name__ == "__main__":
    unittest.main()
