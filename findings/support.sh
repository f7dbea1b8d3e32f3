# Sourced by each script: a temporary folder, pinned packages in it, and the exit codes (README.md).
set -eEuo pipefail
folder=$(mktemp -d) python=$folder/python/bin/python
trap 'rm -rf "$folder"' EXIT
trap 'exit 2' ERR

# packages PACKAGE==VERSION…: installs them for $python alone, where an exception that nobody catches is exit code 2 too.
packages() {
  python3 -m venv --clear "$folder/python"
  "$folder/python/bin/pip" install --quiet --no-compile --disable-pip-version-check "$@"
  echo 'import sys; sys.excepthook = lambda *error, sys=sys: (sys.__excepthook__(*error), sys.exit(2))' > \
    "$(echo "$folder"/python/lib/python3*/site-packages)/findings.pth"
}

# quiet COMMAND…: what it prints is shown if it fails.
quiet() {
  "$@" > "$folder/printed" 2>&1 || { cat "$folder/printed" >&2; exit 2; }
}

# check COMMAND…: the end of a script. COMMAND returns 0 if the behaviour is as described, 1 if it has changed; of anything else its standard
# error is shown.
check() {
  local code=0
  "$@" 2> "$folder/printed" || code=$?
  [ $code -gt 1 ] || exit $code
  cat "$folder/printed" >&2
  exit 2
}
