#!/usr/bin/env bash
# Checks that includes follow the arrows of the house: tools → launch → pipeline → layers → kernels → runtime.
# All folders share one include root, so the build cannot check this. Usage: check_arrows.sh SOURCE_DIR
set -u
cd "${1:?usage: check_arrows.sh SOURCE_DIR}" || exit 2

failures=0
for folder in runtime/comm kernels/cuda pipeline/{schedule,options,layout,stage,exchange,checkpoint,decode,engine,instruments} layers \
              tools/{config,output,corpus,plan,bench,checkpoint,translate,report,compare,doctor,train} launch; do
  [ -d $folder ] || { echo "there is no folder $folder: its includes are not checked"; failures=1; }
done
# forbid FOLDER PATTERN: no file below FOLDER includes a path that starts with PATTERN.
forbid() {
  local found
  found=$(grep -rnE --include='*.h' --include='*.cc' --include='*.cu' "^#include \"$2" "$1")
  [ -z "$found" ] && return
  echo "includes against the arrows:"
  echo "$found"
  failures=1
}
above_runtime='(kernels|layers|pipeline|configs|tools|launch|tests)/'
forbid runtime "$above_runtime"
forbid kernels '(layers|pipeline|configs|tools|launch|tests|runtime/comm)/'
forbid layers '(pipeline|configs|tools|launch|tests|runtime/comm)/'
forbid pipeline '(configs|tools|launch|tests)/'
# in_order ROOM FOLDER…: a folder of the room may include those before it, none behind it.
in_order() {
  local room=$1 folder below before=
  shift
  for folder in "$@"; do
    for below in $before; do forbid "$room/$below" "$room/$folder/"; done
    before="$before $folder"
  done
}
in_order pipeline schedule options layout stage exchange checkpoint decode engine instruments
for folder in schedule options layout stage exchange checkpoint decode engine instruments; do forbid pipeline/$folder 'pipeline/[a-z_0-9]+\.h'; done
in_order tools config output corpus plan bench checkpoint translate report compare doctor train
forbid launch '(configs|tools|tests)/'
forbid tools 'tests/'
# Within runtime, the machine does not know its neighbours or its corpora.
found=$(grep -nE '^#include "runtime/(comm|data)/' runtime/*.h runtime/*.cc)
[ -z "$found" ] || { echo "runtime includes its own subfolders:"; echo "$found"; failures=1; }
# Protobuf and command lines stop at tools.
found=$(grep -rnE --include='*.h' --include='*.cc' '^#include [<"](google/protobuf|CLI/)' runtime kernels layers pipeline launch)
[ -z "$found" ] || { echo "Protobuf or CLI below tools:"; echo "$found"; failures=1; }
# CLI11 is compiled whole with each file that includes it: tools/command_line is what the others include.
found=$(grep -rnE --include='*.h' --include='*.cc' '^#include [<"]CLI/' tools |
  grep -vE '^(tools/command_line\.cc:|tools/build_info\.cc:.*CLI/Version\.hpp)')
[ -z "$found" ] || { echo "CLI11 beside tools/command_line.cc:"; echo "$found"; failures=1; }
# The kernels use nothing of Abseil: nvcc reads its headers only where those of the arguments include them (runtime/device.h).
found=$(grep -rnE '^#include [<"](absl|google)/|\babsl::' kernels/cuda)
[ -z "$found" ] || { echo "Abseil or Protobuf in kernels/cuda:"; echo "$found"; failures=1; }
# What waits goes by the monotonic clock (runtime/deadline.h, runtime/clock.h): the time of day may be set meanwhile. elastic_job compares
# with the times of files, and waits for nothing.
found=$(grep -rnE 'absl::Now\(\) *([<>]|- )|[-<>=] absl::Now\(\)( \+|;|\))' runtime/comm pipeline launch tools/train |
  grep -vE '^launch/(time_limit|elastic_job)|allowed = deadline - absl::Now\(\);')
[ -z "$found" ] || { echo "waits by the time of day:"; echo "$found"; failures=1; }
[ $failures -eq 0 ] && echo "arrows hold"
exit $failures
