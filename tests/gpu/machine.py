#!/usr/bin/env python3
"""What first_minutes, step_bench and paper_depth ask about the machine, and where programs find their libraries.

    machine.py COMMAND…    runs a command with the pack's programs and libraries and this machine's cuBLASLt and NCCL
    machine.py             prints the folders of CUDA's libraries in this Python's packages
"""

import glob
import importlib.util
import os
import shutil
import subprocess
import sys
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
    """HADAL_COMMIT, what the pack was made of, or git's."""
    packed = ROOT / "COMMIT"
    return (os.environ.get("HADAL_COMMIT") or (packed.read_text().strip() if packed.exists() else "")
            or first_line(["git", "rev-parse", "HEAD"]) or "unknown")


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


def package_folders():
    """Of PyTorch's packages that hold cuBLASLt and NCCL, in this Python."""
    found = importlib.util.find_spec("nvidia")
    return [folder for root in (found.submodule_search_locations or [] if found else [])
            for folder in sorted(glob.glob(f"{root}/*/lib"))]


def environment():
    """The variables with which programs start here: os.environ, the pack's libraries and Open MPI, and CUDA's libraries of the Python
    with PyTorch and of the toolkit behind what LD_LIBRARY_PATH has."""
    variables = dict(os.environ)
    packages = first_line([python_with_torch(), str(Path(__file__).resolve())]).split(":")
    toolkits = sorted(glob.glob("/usr/local/cuda*/lib64"))
    path = [str(ROOT / "lib")] * (ROOT / "lib").is_dir() + variables.get("LD_LIBRARY_PATH", "").split(":") + packages + toolkits
    variables["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(folder for folder in path if folder))
    variables.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if (ROOT / "ompi").is_dir():
        variables.update(OPAL_PREFIX=str(ROOT / "ompi"), OPAL_SYSCONFDIR=str(ROOT / "ompi/etc"), PMIX_LIBDIR=str(ROOT / "pmix/lib"),
                         PMIX_DATADIR=str(ROOT / "pmix/share"), PATH=f"{ROOT}/ompi/bin:{ROOT}/bin:{variables['PATH']}")
    if not (shutil.which("ssh") or shutil.which("rsh")):  # mpirun wants a remote shell even for this host alone
        variables.setdefault("OMPI_MCA_plm_rsh_agent", "/bin/false")
    # Containers may refuse direct copies between processes.
    variables.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
    return variables


def main():
    if len(sys.argv) == 1:
        print(":".join(package_folders()))
        return
    variables = environment()
    program = shutil.which(sys.argv[1], path=variables["PATH"])
    if not program:
        sys.exit(f"machine.py: no program {sys.argv[1]}")
    os.execve(program, sys.argv[1:], variables)


if __name__ == "__main__":
    main()
