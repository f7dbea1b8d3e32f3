#!/usr/bin/env bash
# Checks that docs/metrics.md has each name that the program writes to metrics.jsonl and TensorBoard: every name among the
# string literals of the two sinks and their interface, and the series of the instruments.
# Usage: check_metrics.sh SOURCE_DIR
set -uo pipefail
cd "${1:?usage: check_metrics.sh SOURCE_DIR}" || exit 2

literals() { sed -E 's,(^| )//.*,,; /#include/d' "$@" | grep -oE '"[a-z0-9_/]*[a-z][a-z0-9_/]*"' | tr -d '"'; }
names=$({
  literals runtime/metrics_sink.h tools/output/metrics_jsonl.cc tools/output/tensorboard.cc
  sed -nE 's/^ +\{"([a-z_]+)",.*/\1/p' runtime/depth_metrics.h
} | sort -u)
[ "$(wc -w <<< "$names")" -gt 20 ] || { echo "no names found: is this the source tree?"; exit 2; }
documented=$(grep -oE '`[^`]+`' docs/metrics.md)
missing=0
for name in $names; do
  case $name in
    */ | /* | *_ | _*) grep -qF -- "$name" <<< "$documented" ;;  # a part of a tag
    *) grep -qE "[^a-z0-9_]$name[^a-z0-9_]" <<< "$documented" ;;
  esac || { echo "docs/metrics.md does not have $name"; missing=1; }
done
[ $missing -eq 0 ] || exit 1
echo "docs/metrics.md has all $(wc -w <<< "$names") names"
