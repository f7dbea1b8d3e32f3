#!/usr/bin/env bash
# Each check of the sources passes a small tree without faults, and finds each fault that it is for, planted alone, and says where.
# Usage: check_scripts_test.sh arrows|includes|links|metrics|format|tidy; 77: the program that the check runs is not installed, and only what it does
# without was tested.
set -u
check=${1:?usage: check_scripts_test.sh arrows|includes|links|metrics|format|tidy}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/support/command_test.sh"
# What all shell tests rest on: a failure counts.
(expect 1 true; finished) > /dev/null && { echo "FAILED: expect compares no exit code"; exit 1; }
(expect 0 echo one; says two; finished) > /dev/null && { echo "FAILED: says finds what is not there"; exit 1; }
(expect 0 echo one; lacks one; finished) > /dev/null && { echo "FAILED: lacks does not find what is there"; exit 1; }

# In tree/: a file a room, which passes every check.
fresh_tree() {
  rm -rf tree
  mkdir -p tree/{configs,docs,kernels/cuda,launch,layers,pipeline/{schedule,options,layout,stage,exchange,checkpoint,decode,engine,instruments},runtime/{comm,data},tests,tools/{config,output,corpus,plan,bench,checkpoint,translate,report,compare,doctor,train}}
  cp "$here/../.clang-format" "$here/../.clang-tidy" tree
  local file
  for file in kernels/cuda/add.cu tools/hadal.cc layers/layer.h pipeline/{trainer,stage/stage,checkpoint/file,instruments/probe}.h runtime/comm/world.h tools/plan.h; do
    echo '#include "runtime/clock.h"' > "tree/$file"
  done
  printf '#pragma once\n\n#include <cstdint>\n\ninline int64_t Ticks() { return 1; }\n' > tree/runtime/clock.h
  printf '#include "runtime/clock.h"\n\nint64_t TwoTicks() { return 2 * Ticks(); }\n' > tree/runtime/clock.cc
  printf '# A tree\n\n[file](layers/layer.h) [folder](runtime) [heading](#a-tree) [other](docs/other.md#two-words) [web](https://nowhere.invalid)\n' > tree/README.md
  printf '# Other\n\n## Two `words`\n' > tree/docs/other.md
}
# plant FILE LINE: a fresh tree with one more line, at the end of FILE.
plant() { fresh_tree; echo "$2" >> "tree/$1"; }
# What the check makes of the tree.
run_check() { expect "$1" "$here/check_$check.sh" tree; }
passed() { run_check 0; }
found() { local words; run_check 1; for words in "$@"; do says "$words"; done; }
nothing_there() { run_check 2; says "$1"; }
# Prints the path of a machine that has neither clang-format nor clang-tidy.
bare_path() {
  mkdir -p bare
  local program
  for program in awk bash env find grep mkdir realpath rm sed sort xargs; do ln -sf "$(type -P "$program")" "bare/$program"; done
  echo "$PWD/bare"
}

test_arrows() {
  local rule
  passed
  for rule in runtime:kernels/add.h runtime:tests/any.h kernels:layers/layer.h kernels:runtime/comm/world.h layers:pipeline/stage/stage.h \
              layers:runtime/comm/world.h pipeline:tools/plan.h pipeline/checkpoint:pipeline/decode/any.h \
              pipeline/engine:pipeline/instruments/probe.h pipeline/layout:pipeline/stage/stage.h pipeline/stage:pipeline/trainer.h \
              launch:tools/any.h launch:configs/any.h tools/plan:tools/report/report.h tools/output:tools/corpus/any.h tools:tests/any.h launch:tests/any.h; do
    plant "${rule%%:*}/new.h" "#include \"${rule#*:}\""; found 'includes against the arrows' "^${rule%%:*}/new.h:1:.*${rule#*:}"
  done
  plant runtime/new.cc '#include "runtime/data/corpus.h"'; found 'runtime includes its own subfolders' '^runtime/new.cc:1:'
  plant pipeline/new.h '#include "CLI/CLI.hpp"'; found 'Protobuf or CLI below tools' '^pipeline/new.h:1:'
  plant runtime/new.cc '#include <google/protobuf/message.h>'; found 'Protobuf or CLI below tools' '^runtime/new.cc:1:'
  plant tools/new.h '#include "CLI/CLI.hpp"'; found 'CLI11 beside tools/command_line.cc' '^tools/new.h:1:'
  plant tools/new.cc '#include "CLI/Version.hpp"'; found 'CLI11 beside tools/command_line.cc' '^tools/new.cc:1:'
  plant kernels/cuda/new.cu '#include "absl/status/status.h"'; found 'Abseil or Protobuf in kernels/cuda' '^kernels/cuda/new.cu:1:'
  plant pipeline/new.cc 'const absl::Time end = absl::Now() + absl::Seconds(1);'; found 'waits by the time of day' '^pipeline/new.cc:1:'
  plant launch/new.cc 'while (absl::Now() < end) Progress();'; found 'waits by the time of day' '^launch/new.cc:1:'
  for rule in kernels kernels/cuda pipeline/instruments runtime/comm; do
    fresh_tree; rm -r "tree/$rule"; found "there is no folder $rule"
  done
}

test_includes() {
  local use
  passed
  for use in 'algorithm:std::sort(a, b)' 'array:std::array<int, 2> a' 'cmath:std::sqrt(a)' 'cstdint:uint8_t a' 'functional:std::function<void()> a' \
             'map:std::map<int, int> a' 'memory:std::unique_ptr<int> a' 'optional:std::nullopt' 'span:std::span a' 'string:std::string a' \
             'utility:std::move(a)' 'vector:std::vector<int> a' 'absl/status/status.h:absl::OkStatus()' 'absl/status/statusor.h:absl::StatusOr<int> a' \
             'absl/strings/str_cat.h:absl::StrCat(a)' 'absl/strings/str_format.h:absl::StrFormat(a)' 'absl/time/time.h:absl::Seconds(1);'; do
    plant tools/new.cc "${use#*:}"; found 'use a header that they do not include' "^ *tools/new.cc: ${use%%:*}$"
    plant tools/new.cc "#include <${use%%:*}>"; echo "${use#*:}" >> tree/tools/new.cc; passed
  done
  plant tools/new.h '// std::vector<int>'; passed
  fresh_tree; find tree \( -name '*.h' -o -name '*.cc' \) -delete; nothing_there 'no source files found'
}

test_links() {
  passed
  plant README.md '[gone](docs/gone.md)'; found 'README.md:4: docs/gone.md: there is no ./docs/gone.md'
  plant docs/other.md '[beside](layers/layer.h)'; found 'docs/other.md:4: layers/layer.h: there is no docs/layers/layer.h'
  plant README.md '[a heading](docs/other.md#three-words)'; found 'README.md:4: docs/other.md#three-words: ./docs/other.md has no such heading'
  plant README.md '[its own](#tree)'; found 'README.md:4: #tree: README.md has no such heading'
  plant docs/other.md $'```\n# No heading\n```\n[code](#no-heading)'; found 'docs/other.md:7: #no-heading: docs/other.md has no such heading'
  fresh_tree; rm tree/README.md; nothing_there 'no link found'
}

test_metrics() {
  fresh_tree
  mkdir -p tree/tools/output
  cp "$here"/../tools/output/{metrics_jsonl,tensorboard}.cc tree/tools/output
  cp "$here/../runtime/depth_metrics.h" tree/runtime
  cp "$here/../docs/metrics.md" tree/docs
  passed
  echo '// "a_comment"' >> tree/tools/output/metrics_jsonl.cc; passed
  echo 'Json Two() { return {{"loss", 1}, {"new_field", 2}}; }' >> tree/tools/output/metrics_jsonl.cc
  echo 'AddScalar(summary, "train/new_tag", 2);' >> tree/tools/output/tensorboard.cc
  echo '    {"new_series", "A title", "a unit", true},' >> tree/runtime/depth_metrics.h
  found 'does not have new_field' 'does not have train/new_tag' 'does not have new_series'
  rm tree/tools/output/*; nothing_there 'no names found'
}

test_format() {
  local dots
  dots=$(printf '·%.0s' {1..117})  # 120 characters behind "// ", of two bytes each
  fresh_tree; expect 77 env PATH="$(bare_path)" "$here/check_format.sh" tree; says SKIPPED
  plant runtime/clock.h "// ${dots}·"; expect 1 env PATH="$(bare_path)" "$here/check_format.sh" tree; says 'runtime/clock.h:6: 121'
  command -v clang-format > /dev/null || return 77
  plant runtime/clock.h "// $dots"; passed
  plant runtime/clock.h "// https://nowhere.invalid/$dots"; passed
  plant tools/new.cc "int Two() { return 2; }  // $dots"; found 'more than 120 characters' 'tools/new.cc:1: 145'
  plant tools/new.cc 'int  Two() { return 2; }'; found '^tools/new.cc:1:' 'Not formatted'
  plant kernels/cuda/add.cu 'int *two;'; found '^kernels/cuda/add.cu:2:' 'Not formatted'
  fresh_tree; find tree \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -delete; nothing_there 'no source files found'
}

# compiled FILE…: in build/, as CMake leaves it.
compiled() {
  local file
  mkdir -p build
  for file in "$@"; do
    printf '  "command": "/usr/bin/c++ -I%s -std=gnu++20 -o %s.o -c %s",\n' "$work/tree" "$file" "$work/tree/$file"
  done > build/compile_commands.json
}
test_tidy() {
  run_check() { expect "$1" "$here/check_tidy.sh" tree build; }
  local twice='namespace { [[maybe_unused]] int Same() { return 1; } }' null='int* Null() { return 0; }'
  compiled runtime/clock.cc; expect 77 env PATH="$(bare_path)" "$here/check_tidy.sh" tree build; says SKIPPED
  command -v clang-tidy > /dev/null || return 77
  compiled runtime/clock.cc runtime/new.cc
  plant runtime/new.cc 'int Two() { return 2; }'; passed; says '2 files are tidy'
  echo "$null" >> tree/runtime/new.cc; found 'new.cc:2:.*modernize-use-nullptr' 'clang-tidy found something'
  # Two files that clang-tidy cannot be given as one.
  plant runtime/new.cc "$twice"; echo "$twice" >> tree/runtime/clock.cc; passed; says '2 files are tidy'
  echo "$null" >> tree/runtime/new.cc; found 'new.cc:2:.*modernize-use-nullptr'
  # Compiled together by the build.
  mkdir -p build/Unity
  printf '#include "%s"\n\n' "$work/tree/runtime/clock.cc" "$work/tree/runtime/new.cc" > build/Unity/unity_0_cxx.cxx
  printf '  "command": "/usr/bin/c++ -I%s -std=gnu++20 -o unity.o -c %s",\n' "$work/tree" "$PWD/build/Unity/unity_0_cxx.cxx" > build/compile_commands.json
  found 'new.cc:2:.*modernize-use-nullptr'
  : > build/Unity/unity_0_cxx.cxx; nothing_there 'unity_0_cxx.cxx includes no source'
  compiled runtime/clock.cc
  plant runtime/clock.h 'struct Tick { Tick(int at); };'; found 'clock.h:6:.*google-explicit-constructor'
  plant runtime/clock.cc 'int Broken( { return 2; }'; found 'clock.cc:4:.*clang-diagnostic-error'
  compiled tools/plan.cc; fresh_tree; nothing_there 'no source files found'
}

fresh_tree
"test_$check"
skipped=$?
[ $failures -eq 0 ] && [ $skipped -eq 77 ] && { echo "SKIPPED: the program that the check runs is not installed"; exit 77; }
finished
