"""hadal's run directories in Python: what a run recorded, as pandas frames, and its pages and pictures.

    import pyhadal
    run = pyhadal.Run("runs/first")
    run.metrics.plot(x="step", y="nll")

Run, read_metrics    what is on disk
Table                rows that print as text, Markdown, HTML, LaTeX and CSV
configs              the folder of the ready-made configs
Refusal              the error for what the user named
`python3 -m pyhadal --help` is the command line that `hadal report` and others start. pandas, matplotlib and jinja2 are
imported when they are used.
"""

import os
import sys

# Started by hand, `python3 -m pyhadal` executes nothing from the working folder; of a json.py there it would be a surprise.
if sys.argv[:1] == ["-m"] and sys.path[:1] == [os.getcwd()] != [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]:
    del sys.path[0]

from pyhadal.refusal import Refusal
from pyhadal.run import Run, read_metrics
from pyhadal.table import Cell, Table

# The folder of the ready-made configs: of a wheel, of an installed hadal, of the source tree, or "".
_here = os.path.dirname(os.path.abspath(__file__))
configs = next((path for path in (os.path.normpath(os.path.join(_here, way, "configs")) for way in ("share/hadal", "../..", "../../.."))
                if os.path.isdir(path)), "")

__all__ = ["Cell", "Refusal", "Run", "Table", "configs", "read_metrics"]
