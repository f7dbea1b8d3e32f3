"""examples/look_at_a_run.ipynb, executed on a recorded run: no cell fails, and its tables and pictures are there."""

import os
import tempfile
import unittest

import nbformat
from nbclient import NotebookClient

from pyhadal_report_test import recorded_run

NOTEBOOK = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "look_at_a_run.ipynb")


class NotebookTest(unittest.TestCase):
    def test_it_runs(self):
        with tempfile.TemporaryDirectory() as scratch:
            depth = [{"event": "depth", "step": step, "parameter_gradient": [1e-3, 0.1, None, 1.0, 2.0]} for step in (1, 2)]
            os.environ["RUN"] = recorded_run(os.path.join(scratch, "first"), extra=[
                *depth, {"event": "sample", "step": 6, "text": "a translation"}, {"event": "diagnosis", "step": 5, "text": "a diagnosis"}])
            notebook = nbformat.read(NOTEBOOK, as_version=4)
            self.assertFalse([cell for cell in notebook.cells if cell.get("outputs")], "stored without outputs")
            os.environ["IPYTHONDIR"] = scratch
            NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": scratch}}).execute()
        shown = [[output.get("text") or output["data"] for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]
        self.assertEqual(len(shown), 5)
        self.assertIn("a diagnosis", shown[0][0]["text/plain"])
        self.assertIn("image/png", shown[1][-1])
        self.assertIn("Where a step goes", shown[2][0])
        self.assertIn("image/svg+xml", shown[3][0])
        self.assertEqual(shown[4][0], "a translation\n")


if __name__ == "__main__":
    unittest.main()
