#!/usr/bin/env bash
# Checks that every C++ and CUDA file is as clang-format leaves it, and that no line with a comment has more than
# 120 characters. Usage: check_format.sh SOURCE_DIR; 77: no line is too long, and clang-format is not installed.
set -uo pipefail
cd "${1:?usage: check_format.sh SOURCE_DIR}" || exit 2

# clang-format does not break comments. Counts characters, not bytes: in UTF-8 the bytes 0x80 to 0xBF continue a character.
# A line with a URL may be longer, and so may tables and texts without a comment.
long=$(find runtime kernels layers pipeline tools launch tests -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' | sort | LC_ALL=C xargs awk '
  index($0, "//") && index($0, "://") == 0 { line = $0; gsub(/[\200-\277]/, "", line); if (length(line) > 120) print "  " FILENAME ":" FNR ": " length(line) }')
[ -z "$long" ] || { printf 'These lines have more than 120 characters:\n%s\n' "$long"; exit 1; }

command -v clang-format > /dev/null || { echo "SKIPPED: clang-format is not installed"; exit 77; }
mapfile -t files < <(find runtime kernels layers pipeline configs tools launch tests -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')
[ ${#files[@]} -gt 0 ] || { echo "no source files found in $PWD"; exit 2; }
found=$(clang-format --dry-run -Werror "${files[@]}" 2>&1) || {
  grep -E '(error|warning):' <<< "$found"
  echo "Not formatted. To mend: clang-format -i FILE"
  exit 1
}
echo "${#files[@]} files are formatted"
