# Sourced by the tests of hadal_torch: finds a Python that can import what a test needs.
#
#   find_python MODULE…    sets $python; prints the reason and ends with status 77 (skipped) where there is none
# Python: $HADAL_INTERCHANGE_PYTHON, else build/python (tests/run makes it), python3, /usr/bin/python3.
. "$(dirname "${BASH_SOURCE[0]}")/../../support/python_modules.sh"
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
export PYTHONPATH=$tree/tools/python PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
find_python() {
  local candidate
  for candidate in "${HADAL_INTERCHANGE_PYTHON:-$tree/build/python/bin/python3}" python3 /usr/bin/python3; do
    if has_modules "$candidate" "$@"; then python=$candidate; return; fi
  done
  echo "SKIPPED: no python3 here has all of $* (tests/tools/python/requirements.txt has the versions; or set HADAL_INTERCHANGE_PYTHON)"
  exit 77
}
