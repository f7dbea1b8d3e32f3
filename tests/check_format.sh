#!/usr/bin/env bash
# Checks that every C++ and CUDA file is as clang-format leaves it. Usage: check_format.sh SOURCE_DIR; 77: no clang-format here.
set -uo pipefail
cd "${1:?usage: check_format.sh SOURCE_DIR}" || exit 2
command -v clang-format > /dev/null || { echo "SKIPPED: clang-format is not installed"; exit 77; }
mapfile -t files < <(find runtime kernels layers pipeline configs tools launch tests -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')
[ ${#files[@]} -gt 0 ] || { echo "no source files found in $PWD"; exit 2; }
clang-format --dry-run -Werror "${files[@]}" 2> >(grep -E '(error|warning):' >&2) || {
  echo "Not formatted. To mend: clang-format -i FILE"
  exit 1
}
echo "${#files[@]} files are formatted"
