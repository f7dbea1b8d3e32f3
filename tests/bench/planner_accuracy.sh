#!/usr/bin/env bash
# How near the planner comes: 12 layouts on this machine, each predicted from a profile and run, in turn, five times. A product
# calibration before and after every profile and every run divides the machine's own ups and downs out of both. Printed are medians.
#
#   tests/bench/planner_accuracy.sh path/to/hadal [ROUNDS [SECONDS]] > tests/bench/results/planner_accuracy.txt
# Fewer rounds where the next one would end after SECONDS.
#
# Memory is what a rank holds between steps: what the system cannot take back (anonymous and shared memory: the arena, the heap, MPI's
# buffers), after malloc has given back what it keeps free. It is what the plan means: the arena, whose pages have their memory from the
# start, and what the profile measured the same way beside it. Not in it, because no layout changes them and chance does: pages of files
# (program, libraries, corpus: 18 to 26 MiB mapped here, of which the page cache has one copy for all ranks), and what products allocate and
# free inside a step (packing buffers of 1 to 2 MiB, between which splinters of the heap keep up to 25 MiB apart). The last column is the
# process's peak with all of that, as the system counts it.
# About eight minutes on two cores; the machine should be idle.
set -euo pipefail
echo "# load before: $(cut -d' ' -f1-3 /proc/loadavg)"
. "$(dirname "$0")/workplace.sh" "$1"
python3 "$here/planner_accuracy.py" "$hadal" "${2:-5}" "${3:-3600}"
