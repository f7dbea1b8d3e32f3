#!/usr/bin/env bash
# launch/quickstart around a program that is not there: rounds until enough is right, the deep runs, Ctrl-C, a failed run, missing packages, a failed
# build. The program itself, its configs and the sentence about the deep runs have their own tests.   Usage: quickstart_test.sh SOURCE_DIR
set -u
source=$(realpath "${1:?usage: quickstart_test.sh SOURCE_DIR}")
. "$(dirname "$0")/../support/command_test.sh"

# A tree with the script, and stand-ins for cmake, ninja, mpirun and hadal.
mkdir -p tree/launch tree/build/release tree/tools bin && cp "$source/launch/quickstart" tree/launch && ln -s "$source/tools/python" tree/tools/python
touch tree/build/release/CMakeCache.txt
cat > tree/launch/debian_packages.sh <<'END'
hadal_build_packages=(cmake)
missing_packages() { [ ! -e "$STUBS/missing" ] || echo "$1"; }
install_packages() { touch "$STUBS/installed"; }
END
printf '#!/bin/sh\necho configured; [ ! -e "$STUBS/broken" ]\n' > bin/cmake
printf '#!/bin/sh\necho "ninja: no work to do."\n' > bin/ninja
printf '#!/bin/sh\necho "# CPU"; for core in 0 1 2 3 4 5 6 7; do echo $core,0; echo $core,0; done\n' > bin/lscpu  # two threads a core
printf '#!/bin/sh\necho 16\n' > bin/nproc
printf '#!/bin/bash\nwhile [ "${1##*/}" != hadal ]; do shift; done\nexec "$@"\n' > bin/mpirun
cat > tree/build/release/hadal <<'END'
#!/bin/bash
echo "$*" >> "$STUBS/words"
lines() { for i in $(seq 200); do echo "$1 $i"; done; }
case $1 in
  supervise) shift 2; exec "$@" ;;
  make-corpus) mkdir -p "$3"; for part in train valid test; do lines one > "$3/$part.en"; lines eins > "$3/$part.de"; done ;;
  translate) [ ! -e "$STUBS/mute" ] || exit 1; echo >> "$STUBS/rounds"; right=$((95 * $(wc -l < "$STUBS/rounds"))); lines one | sed "$((right + 1)),\$s/one/two/" ;;
  train)
    [ ! -e "$STUBS/fails" ] || exit 4
    run=${*: -1}; mkdir -p "$run"
    printf '%s\n' '{"event":"run","encoder_sublayers":1}' '{"event":"step","step":100,"nll":5}' \
      '{"event":"depth","step":100,"parameter_gradient":[9,1,4]}' > "$run/metrics.jsonl"
    if [ -e "$STUBS/waits" ]; then trap 'sleep 0.3; touch "$STUBS/saved"; exit 85' USR1; touch "$STUBS/up"; for _ in $(seq 2000); do sleep 0.05; done; fi ;;
esac
END
chmod +x bin/* tree/build/release/hadal
export STUBS=$work PATH=$work/bin:$PATH HADAL_COLUMNS=300
steps() { [ "$(grep -o 'supervise.*stop.steps=[0-9]*' words | grep -o '[0-9]*$' | paste -sd ' ')" = "$1" ] || { cat words; fail "rounds other than $1"; }; }

echo "a run that is stopped is saved and continues"
touch waits; tree/launch/quickstart --run-dir first > out 2>&1 & script=$!
until [ -e up ]; do kill -0 $script || break; sleep 0.05; done
kill -TERM $script; wait $script; code=$?
[ $code -eq 130 ] && [ -e saved ] || fail "exit code $code instead of 130, or before the run has saved"
says "Saved. To continue: launch/quickstart --run-dir $work/first"; [ -e installed ] || fail "no packages were installed"
rm waits; expect 0 tree/launch/quickstart --run-dir first
steps "100 100 200"
says "after 100 steps: 95 of 200 held-out"; says "^200 steps: 190 of 200 held-out numbers exactly right (enough: it stops here)"
says "After 100 steps each, DeepNorm's loss went from 5.00 to 5.00 .* 25% with DeepNorm"
for part in "supervise.*train configs/quickstart/shallow.textproto.* --run-dir $work/first/shallow" "prepare .*--overwrite" \
  "supervise.*configs/quickstart/deep.textproto configs/method/deepnorm.textproto" "supervise.*configs/method/post_ln.textproto" \
  "curve .*--label DeepNorm Post-LN" "supervise -- mpirun -n 4 .*pipeline.threads=2 --set checkpoint.every_steps=0 "; do
  grep -q -- "$part" words || fail "it never calls $part"
done
rm first/shallow.done; calls=$(grep -c supervise words); expect 0 tree/launch/quickstart --run-dir first
steps "100 100 200 300"; [ "$(grep -c supervise words)" -eq $((calls + 1)) ] || fail "deep runs that have ended are started again"
: > first/post_ln/metrics.jsonl; expect 1 tree/launch/quickstart --run-dir first; says "the deep runs cannot be compared"
touch mute; expect 1 tree/launch/quickstart --run-dir third; says "translation failed"; rm mute

echo "what fails ends it with its code"
touch fails
for part in "1 2" "3 3"; do  # CPUs of this process, fewer than the machine's, and ranks
  printf '#!/bin/sh\necho %s\n' "${part% *}" > bin/nproc; : > words
  expect 4 tree/launch/quickstart --run-dir second; says "training ended with exit code 4"
  grep -q "supervise -- mpirun -n ${part#* } .*pipeline.threads=1 " words || { cat words; fail "other ranks than ${part#* } of ${part% *} CPUs"; }
done
touch missing; expect 1 tree/launch/quickstart --run-dir second --no-install; says "these Debian packages are missing: cmake"
rm missing; touch broken; expect 1 tree/launch/quickstart --run-dir second; says "^configured"; says "CMake could not configure"
expect 2 tree/launch/quickstart --fast; says "unknown option --fast"

echo "packages that are missing are installed, and no others"
printf '#!/bin/sh\n[ "$3" = there ] && echo install ok installed\n' > bin/dpkg-query
printf '#!/bin/sh\necho 0\n' > bin/id
printf '#!/bin/sh\necho "$*" >> "$STUBS/words"\n' > bin/apt-get; chmod +x bin/*; : > words
packages() { expect 0 bash -c '. "$0/launch/debian_packages.sh"; install_packages "$@"' "$source" "$@"; }
packages there; [ ! -s words ] || fail "packages that are there are installed again"
packages there gone; says "^Installing 1 Debian packages .*: gone$"
[ "$(tail -n 1 words)" = "install -y -qq --no-install-recommends gone" ] || { cat words; fail "other packages are installed than the missing one"; }
finished
