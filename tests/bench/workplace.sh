# Sourced by the scripts beside it: says which machine and program this is and goes to a temporary directory, removed at the end, with a
# synthetic corpus in data/. Leaves $hadal and $here, this folder.
# Usage: . workplace.sh HADAL
hadal=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
echo "# $(uname -m), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $(git -C "$here" describe --always --dirty)"
cd "$work" || exit 1
"$hadal" make-corpus --out text --pairs 4000 --valid 40 --test 20 --seed 3 > /dev/null
"$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 500 > /dev/null
