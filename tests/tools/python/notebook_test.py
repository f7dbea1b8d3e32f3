"""The notebooks of examples/, executed: no cell fails, and their tables, pictures and diagnoses are there."""

import json
import os
import sys
import tempfile
import unittest

import nbformat
from nbclient import NotebookClient

from pyhadal_report_test import recorded_run

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples")


class NotebookTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def execute(self, name):
        """The outputs of each cell of code: the text of streams, the data of results."""
        notebook = nbformat.read(os.path.join(EXAMPLES, name), as_version=4)
        self.assertFalse([cell for cell in notebook.cells if cell.get("outputs")], "stored without outputs")
        os.environ.update(IPYTHONDIR=self.folder, JUPYTER_PATH=self.folder)
        kernel = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "this Python"}
        os.makedirs(os.path.join(self.folder, "kernels", "this"))
        with open(os.path.join(self.folder, "kernels", "this", "kernel.json"), "w", encoding="utf-8") as file:
            json.dump(kernel, file)
        NotebookClient(notebook, timeout=None, kernel_name="this", resources={"metadata": {"path": self.folder}}).execute()
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        return [[output.get("text") or output["data"] for output in cell.outputs if output.get("name") != "stderr"] for cell in cells]

    def test_look_at_a_run(self):
        depth = [{"event": "depth", "step": step, "parameter_gradient": [1e-3, 0.1, None, 1.0, 2.0]} for step in (1, 2)]
        os.environ["RUN"] = recorded_run(os.path.join(self.folder, "first"), extra=[
            *depth, {"event": "sample", "step": 6, "text": "a translation"}, {"event": "diagnosis", "step": 5, "text": "a diagnosis"}])
        shown = self.execute("look_at_a_run.ipynb")
        self.assertEqual(len(shown), 5)
        self.assertIn("a diagnosis", shown[0][0]["text/plain"])
        self.assertIn("image/png", shown[1][-1])
        self.assertIn("Where a step goes", shown[2][0])
        self.assertIn("image/svg+xml", shown[3][0])
        self.assertEqual(shown[4][0], "a translation\n")

    def test_first_hour(self):
        data, trained, translated, failed, compared, drawn, ended = self.execute("first_hour.ipynb")
        self.assertIn("9,850 samples", data[0]["text/plain"])
        self.assertIn('did you mean "dropout"?', trained[0])
        self.assertIn("first: validation", trained[-1]["image/svg+xml"])
        self.assertGreater(int(translated[0].split()[0]), 40)
        self.assertIn("gradients vanish from decoder layer", failed[0])
        for method in ("post_ln", "deepnorm", "pre_ln"):
            self.assertIn(method, compared[-1]["text/plain"])
            self.assertIn(f"method={method}", drawn[0]["image/svg+xml"])
        self.assertIn("finished", ended[0]["text/plain"])

    def test_depth_of_a_decoder(self):
        _, compared, curves, outputs, gradients, text, _ = self.execute("depth_of_a_decoder.ipynb")
        self.assertEqual(compared[-1]["text/plain"].count("trains"), 3)
        for picture in (curves, outputs, gradients):
            self.assertIn("method=attn_res", picture[0]["image/svg+xml"])
        self.assertEqual(text[0].count("one thousand"), 2)


if __name__ == "__main__":
    unittest.main()
