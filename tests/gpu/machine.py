#!/usr/bin/env python3
"""What run, step_bench and paper_depth ask about the machine. As a program: prints the loader's path with Python's CUDA libraries behind it."""

import glob
import importlib.util
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPARE_BYTES = 4 << 30  # of the GPU's memory, for the driver, its modules and graphs


def first_line(command, seconds=60):
    """Of what it prints; "" where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=ROOT)
        return (done.stdout.strip().splitlines() or [""])[0] if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def commit():
    return os.environ.get("HADAL_COMMIT") or first_line(["git", "rev-parse", "HEAD"]) or "unknown"


def gpu():
    """Name, driver, memory; "" where there is no GPU."""
    return first_line(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])


def gpu_bytes():
    """0: not known."""
    mebibytes = first_line(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"])
    return int(mebibytes) << 20 if mebibytes.isdigit() else 0


def has_gpu():
    return bool(gpu() or glob.glob("/dev/nvidia[0-9]*"))


def python_with_torch():
    return os.environ.get("HADAL_PYTHON", "python3")


def library_path():
    """LD_LIBRARY_PATH, and behind it the folders of PyTorch's packages that hold cuBLASLt and NCCL, for where the toolkit lacks them."""
    found = importlib.util.find_spec("nvidia")
    packages = [folder for root in (found.submodule_search_locations or [] if found else [])
                for folder in sorted(glob.glob(f"{root}/*/lib"))]
    path = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return ":".join(path + [folder for folder in packages if folder not in path])


def find_libraries():
    """hadal, started from here, finds cuBLASLt in the packages of the Python that has PyTorch."""
    path = first_line([python_with_torch(), str(Path(__file__).resolve())])
    if path:
        os.environ["LD_LIBRARY_PATH"] = path


if __name__ == "__main__":
    print(library_path())
