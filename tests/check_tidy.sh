#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy over sources; what it finds is an error. Without folders: the libraries.
# Sixteen files that are compiled alike are looked at as one, so that what they include is parsed and searched once: a third of the time of one
# by one. Where that one does not compile (two files have a function of the same name, each for itself) it is halved.
# Usage: check_tidy.sh SOURCE_DIR BUILD_DIR [FOLDER…]; 77: no clang-tidy here.
set -uo pipefail
source=$(realpath "${1:?usage: check_tidy.sh SOURCE_DIR BUILD_DIR}") build=$(realpath "${2:?usage: check_tidy.sh SOURCE_DIR BUILD_DIR}")
shift 2
folders=${*:-runtime kernels layers pipeline}
command -v clang-tidy > /dev/null || { echo "SKIPPED: clang-tidy is not installed"; exit 77; }
cd "$source" || exit 2
export work=$build/tidy config=$source/.clang-tidy  # the build may lie elsewhere
rm -rf "$work"
mkdir -p "$work"

# "FLAGS<tab>FILE" of each, once where several targets compile it, without the headers that the build parses once for all; what is compiled
# without them is not compiled alike. No CUDA: clang would want a toolkit of its own.
sed -nE 's/( -Winvalid-pch) -include [^ ]*cmake_pch\.hxx/\1/; s/\\(.)/\1/g; s/^ *"command": "[^ ]* (.*) -o [^ ]* -c ([^ ]*)",?$/\1\t\2/p' \
  "$build/compile_commands.json" |
  # What the build compiles together, one by one.
  awk -F'\t' '$2 !~ /\/Unity\/unity_/ { print; next }
    { found = 0; while ((getline line < $2) > 0) if (split(line, part, "\"") == 3) { found = 1; print $1 "\t" part[2] }
      if (!found) { print $2 " includes no source"; exit 2 } }' |
  tee "$work/found" | grep -E "	$source/(${folders// /|})/.*\.cc$" | grep -v "	$source/kernels/cuda/" | sort -u | awk -F'\t' '!seen[$2]++' > "$work/files"
grep 'includes no source$' "$work/found" && exit 2
[ -s "$work/files" ] || { echo "no source files found in $build/compile_commands.json"; exit 2; }

# work/NNN: a batch's flags, then its files, a line each. A file that Highway compiles once for each instruction set is looked at for one
# of them: the text is the same.
awk -F'\t' -v work="$work" '
  { like = $1; while ((getline line < $2) > 0) if (line ~ /foreach_target\.h/) like = $1 " -DHWY_COMPILE_ONLY_STATIC"; close($2) }
  like != flags || size == 16 { batch = sprintf("%s/%03d", work, batches++); size = 0; flags = like; print flags > batch }
  { print $2 > batch; size++ }' "$work/files" || exit 2

look() {  # FLAGS FILE...: what is found in the files
  local flags=$1 one found half=$((($# - 1) / 2))
  shift
  one=$1
  if [ $# -gt 1 ]; then
    one=$(mktemp "$work/XXXXXX.cc") || return 2
    printf '#include "%s"\n' "$@" > "$one"
  fi
  found=$(eval "clang-tidy --quiet --config-file='$config' --warnings-as-errors='*' --checks=-bugprone-suspicious-include '$one' -- $flags -Wno-unknown-warning-option" 2>&1) && return
  if [ $# -gt 1 ] && grep -q 'clang-diagnostic-error' <<< "$found"; then
    look "$flags" "${@:1:half}"
    local first=$?
    look "$flags" "${@:half+1}" && return $first
    return 1
  fi
  grep -v 'warnings generated\|^Suppressed\|^Use -header' <<< "$found"
  return 1
}
look_at() {  # BATCH
  local lines
  mapfile -t lines < "$1"
  look "${lines[@]}"
}
export -f look look_at
printf '%s\n' "$work"/[0-9]* | xargs -P "$(nproc)" -I BATCH bash -c 'look_at BATCH' ||
  { echo "clang-tidy found something (see above); .clang-tidy has the checks"; exit 1; }
echo "$(wc -l < "$work/files") files are tidy"
