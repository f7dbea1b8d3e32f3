#!/usr/bin/env bash
# unit_test.sh TEST.py MODULE…: runs a test of hadal_torch with a Python that can import the modules. Exit status 77: there is none.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/find_python.sh"
test=$1; shift
find_python "$@"
cd "$here" && exec "$python" "$test"
