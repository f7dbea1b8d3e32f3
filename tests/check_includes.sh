#!/usr/bin/env bash
# Checks that a file that uses one of the headers which the build parses once for all (cmake/HadalPrecompiled.cmake) includes it, or a header of
# ours that does: the build cannot see it, and without precompiled headers it would not compile. Usage: check_includes.sh SOURCE_DIR
set -uo pipefail
cd "${1:?usage: check_includes.sh SOURCE_DIR}" || exit 2

# header, tab, what is used of it; absl/status/statusor.h has status.h in it, cmath's functions are too many to list.
uses='algorithm	std::(sort|stable_sort|min|max|minmax_element|min_element|max_element|find|find_if|any_of|all_of|none_of|count|count_if|copy_n|fill_n|copy|fill|clamp|reverse|transform|lower_bound|upper_bound|remove_if|stable_partition)[(]
array	std::array<
cmath	std::(sqrt|exp|log|log2|pow|isfinite|isnan|floor|ceil|lround|llround)[(]
cstdint	(^|[^a-z_])u?int(8|16|32|64)_t
functional	std::function<
map	std::map<
memory	std::(unique_ptr|shared_ptr|make_unique|make_shared)<
optional	std::(optional<|nullopt)
span	std::span[^a-z_]
string	std::(string|to_string)[^a-z_]
utility	std::(move|exchange|swap)[(]|std::pair<
vector	std::vector<
absl/status/status.h|absl/status/statusor.h	absl::(Status[^A-Za-z]|OkStatus|[A-Za-z]+Error[(])
absl/status/statusor.h	absl::StatusOr<
absl/strings/str_cat.h	absl::Str(Cat|Append)[(]
absl/strings/str_format.h	absl::StrFormat[(]
absl/time/time.h	absl::(Duration|Seconds|Milliseconds|Now|Time)[^A-Za-z]'

mapfile -t files < <(find runtime kernels layers pipeline tools launch tests -name '*.cc' -o -name '*.h' | sort)
[ ${#files[@]} -gt 0 ] || { echo "no source files found in $PWD"; exit 2; }
found=$(printf '%s\n' "${files[@]}" | xargs awk -v uses="$uses" '
  BEGIN { rules = split(uses, rule, "\n"); for (r = 1; r <= rules; r++) { split(rule[r], part, "\t"); header[r] = part[1]; pattern[r] = part[2] } }
  FNR == 1 { files[++count] = FILENAME }
  /^#include/ { match($0, /[<"][^>"]+/); includes[FILENAME] = includes[FILENAME] " " substr($0, RSTART + 1, RLENGTH - 1); next }
  { sub(/\/\/.*/, ""); for (r = 1; r <= rules; r++) if ($0 ~ pattern[r]) used[FILENAME, r] = 1 }
  function reach(file,   list, n, i) {  # what a file includes, directly or by headers of ours
    n = split(includes[file], list, " ")
    for (i = 1; i <= n; i++) if (!(list[i] in reached)) { reached[list[i]] = 1; if (list[i] in includes) reach(list[i]) }
  }
  END {
    for (f = 1; f <= count; f++) {
      split("", reached); reach(files[f])
      for (r = 1; r <= rules; r++) {
        if (!used[files[f], r]) continue
        split(header[r], one, "|"); if (!(one[1] in reached) && !(one[2] in reached)) print "  " files[f] ": " one[1]
      }
    }
  }')
[ -z "$found" ] && { echo "every file includes what it uses of the precompiled headers"; exit 0; }
echo "these files use a header that they do not include:"
echo "$found"
exit 1
