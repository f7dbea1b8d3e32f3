"""Which packages a command needs, and how to install them."""

from __future__ import annotations

import importlib.util
import sys

from pyhadal.refusal import Refusal

# Names in pip where they differ from the module's.
_PIP_NAMES = {"lingua": "lingua-language-detector"}
# Debian 12 has these for its own Python, named python3-MODULE.
_IN_DEBIAN = {"pandas", "matplotlib", "jinja2", "numpy", "torch"}


def require(*modules: str) -> None:
    """Raises Refusal, with the commands that install them, if modules cannot be imported. Imports none of them."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        return
    pip = " ".join(_PIP_NAMES.get(module, module) for module in missing)
    ways = [f"{sys.executable} -m pip install {pip}"]
    if sys.prefix == "/usr" and _IN_DEBIAN.issuperset(missing):
        ways.insert(0, "apt-get install " + " ".join(f"python3-{module}" for module in missing))
    noun = "package is" if len(missing) == 1 else "packages are"
    raise Refusal(f"Python {noun} missing for {sys.executable}: {', '.join(missing)}; install with: {', or '.join(ways)}; "
                  "or name another Python in HADAL_PYTHON")
