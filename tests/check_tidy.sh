#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy over sources; what it finds is an error. Without folders: all but the tests.
# Ten files that are compiled alike are looked at as one, so that what they include is parsed and searched once: a third of the time of one by
# one. Where that one does not compile (two files have a function of the same name, each for itself) they are looked at one by one.
# Usage: check_tidy.sh SOURCE_DIR BUILD_DIR [FOLDER…]; 77: no clang-tidy here.
set -uo pipefail
source=$(realpath "${1:?usage: check_tidy.sh SOURCE_DIR BUILD_DIR}") build=$(realpath "${2:?usage: check_tidy.sh SOURCE_DIR BUILD_DIR}")
shift 2
folders=${*:-runtime kernels layers pipeline tools launch}
command -v clang-tidy > /dev/null || { echo "SKIPPED: clang-tidy is not installed"; exit 77; }
cd "$source" || exit 2
export work=$build/tidy
rm -rf "$work"
mkdir -p "$work/alone"

# Each as it is compiled, but for the headers that the build parses once for all.
sed 's/ -Winvalid-pch -include [^ ]*cmake_pch\.hxx//' "$build/compile_commands.json" > "$work/alone/compile_commands.json"
# "FLAGS<tab>FILE" of each. No CUDA: clang would want a toolkit of its own.
sed -nE 's/^ *"command": "[^ ]* (.*) -o [^ ]* -c ([^ ]*)",?$/\1\t\2/p' "$work/alone/compile_commands.json" |
  grep -E "	$source/(${folders// /|})/.*\.cc$" | grep -v "	$source/kernels/cuda/" | sort -u > "$work/files"
[ -s "$work/files" ] || { echo "no source files found in $build/compile_commands.json"; exit 2; }

# work/NNN.cc includes a batch's files. A file that Highway compiles once for each instruction set is a batch of its own.
awk -F'\t' -v work="$work" '
  { alone = 0; while ((getline line < $2) > 0) if (line ~ /foreach_target\.h/) alone = 1; close($2) }
  alone || $1 != flags || size == 10 {
    batch = sprintf("%s/%03d.cc", work, batches++); size = 0; flags = alone ? "" : $1
    printf "%s{\"directory\": \"%s\", \"command\": \"c++ %s -c %s\", \"file\": \"%s\"}", batches == 1 ? "[" : ",\n", work, $1, batch, batch
  }
  { printf "#include \"%s\"\n", $2 > batch; size++ }
  END { print "]" }' "$work/files" > "$work/compile_commands.json" || exit 2

tidy() {  # COMMANDS FILE...
  clang-tidy -p "$1" --quiet --warnings-as-errors='*' --checks=-bugprone-suspicious-include --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-Wno-unused-command-line-argument "${@:2}" 2>&1 | grep -v 'warnings generated\|^Suppressed\|^Use -header'
  return "${PIPESTATUS[0]}"
}
look() {  # BATCH
  local files found
  mapfile -t files < <(cut -d'"' -f2 "$1")
  if [ ${#files[@]} -gt 1 ]; then
    found=$(tidy "$work" "$1") && return
    grep -q 'clang-diagnostic-error' <<< "$found" || { echo "$found"; return 1; }
  fi
  tidy "$work/alone" "${files[@]}"
}
export -f tidy look
printf '%s\n' "$work"/[0-9]*.cc | xargs -P "$(nproc)" -I BATCH bash -c 'look BATCH' ||
  { echo "clang-tidy found something (see above); .clang-tidy has the checks"; exit 1; }
echo "$(wc -l < "$work/files") files are tidy"
