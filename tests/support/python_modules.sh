# Sourced by tests that need packages of Python.
#
#   has_modules PYTHON MODULE…    whether it has all of them. They are found, not imported: PyTorch's import takes seconds. One that is there
#                                 and broken makes a test fail.
has_modules() {
  _python=$1; shift
  "$_python" -c 'import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))' "$@" 2> /dev/null
}
