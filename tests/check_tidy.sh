#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy over sources; what it finds is an error. Without folders: the libraries (a parse takes
# seconds a file; tools and launch, with their CLI and JSON headers, twice as many).
# Usage: check_tidy.sh SOURCE_DIR BUILD_DIR [FOLDER…]; 77: no clang-tidy here.
set -uo pipefail
source=$(realpath "${1:?usage: check_tidy.sh SOURCE_DIR BUILD_DIR}") build=$(realpath "${2:?usage: check_tidy.sh SOURCE_DIR BUILD_DIR}")
shift 2
folders=${*:-runtime kernels layers pipeline}
command -v clang-tidy > /dev/null || { echo "SKIPPED: clang-tidy is not installed"; exit 77; }
cd "$source" || exit 2
# Only what the build compiles, and no CUDA: clang would want a toolkit of its own.
mapfile -t files < <(grep -o "\"file\": \"$source/[^\"]*\.cc\"" "$build/compile_commands.json" | cut -d'"' -f4 | sort -u |
  grep -E "^$source/(${folders// /|})/" | grep -v "^$source/kernels/cuda/")
[ ${#files[@]} -gt 0 ] || { echo "no source files found in $build/compile_commands.json"; exit 2; }
# Each file on its own: without the headers that the build parses once for all, so that one that lacks an include of its own is found.
mkdir -p "$build/tidy"
sed 's/ -Winvalid-pch//; s/ -include [^ ]*cmake_pch\.hxx//' "$build/compile_commands.json" > "$build/tidy/compile_commands.json"
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p "$build/tidy" --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument 2> >(grep -v 'warnings generated\|^Suppressed\|^Use -header' >&2) ||
  { echo "clang-tidy found something (see above); .clang-tidy has the checks"; exit 1; }
echo "${#files[@]} files are tidy"
