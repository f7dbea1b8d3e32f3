"""pyhadal.options: the numbers of options; and that every Python command reads its numbers with it."""

import argparse
import ast
import unittest
from pathlib import Path

from pyhadal.options import number

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = [*ROOT.glob("tools/python/**/*.py"), *ROOT.glob("examples/*.py"), ROOT / "configs/papers/data/prepare.py"]


class Numbers(unittest.TestCase):
    def test_a_number_of_the_range(self):
        self.assertEqual(number(int, 0, 2**64 - 1)("18446744073709551615"), 2**64 - 1)
        self.assertEqual(number(float, 0, 1)("1e-3"), 1e-3)

    def test_what_is_in_no_range(self):
        for kind in int, float:
            for text in ("nan", "NaN", "-nan", "inf", "-inf", "1e999", "-1", "1001", "", "x", "1_0"):
                with self.subTest(kind=kind.__name__, text=text), self.assertRaisesRegex(argparse.ArgumentTypeError, "from 0 to 1,000"):
                    number(kind, 0, 1000)(text)


class Commands(unittest.TestCase):
    def test_every_option_with_a_number_has_a_range(self):
        found = 0
        for path in COMMANDS:
            for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "add_argument":
                    continue
                for keyword in call.keywords:
                    if keyword.arg != "type" or getattr(keyword.value, "id", "") == "Path":
                        continue
                    found += 1
                    names = [node.id for node in ast.walk(keyword.value) if isinstance(node, ast.Name)]
                    self.assertIn("number", names, f"{path.name}:{call.lineno}: an option's type is not number(…)")
        self.assertGreater(found, 12)


if __name__ == "__main__":
    unittest.main()
