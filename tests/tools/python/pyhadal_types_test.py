"""mypy --strict on pyhadal and hadal_torch, and on a program that uses it: its stub names the config's fields, their types and their values."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parents[3]
USER = """
import pyhadal
config = pyhadal.Config("small", {"stop.steps": 3})
config.model.encoder_layers = 3
config.pipeline.split = [1, 2]
config.model.residual.method = "deepnorm"
peak: float = config.learning_rate.peak
run = pyhadal.train(config, pyhadal.prepare([("a", "b")], out="data"), run_dir="run")
texts: "list[str]" = run.translate(["a"])
config.model.residual.method = "deepnrm"
config.model.encodr_layers = 3
config.model.dropout = "a"
config.model = config.model
"""


class TypesTest(unittest.TestCase):
    def test_the_packages_and_a_user(self):
        with tempfile.TemporaryDirectory() as scratch:
            for package in ("pyhadal", "hadal_torch"):
                shutil.copytree(TREE / "tools/python" / package, os.path.join(scratch, package))
            shutil.copy(TREE / "tools/python/pyproject.toml", scratch)
            stub = subprocess.run([sys.executable, "-m", "pyhadal.schema"], capture_output=True, text=True, check=True).stdout
            Path(scratch, "pyhadal", "fields.pyi").write_text(stub, "utf-8")
            Path(scratch, "user.py").write_text(USER, "utf-8")
            check = lambda *words: subprocess.run([sys.executable, "-m", "mypy", "--strict", *words], cwd=scratch, capture_output=True, text=True,
                                                  env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}).stdout
            self.assertRegex(check("-p", "pyhadal", "-p", "hadal_torch"), "^Success")
            lines = check("user.py").splitlines()
            self.assertEqual([line.split(":")[1] for line in lines if "error:" in line], ["10", "11", "12", "13"], lines)
            self.assertIn('"Model" has no attribute "encodr_layers"; maybe "encoder_layers"', lines[1])


if __name__ == "__main__":
    unittest.main()
