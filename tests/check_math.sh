#!/usr/bin/env bash
# Checks that nothing below tools and launch calls an elementary function of the C library: their results differ between versions of the library
# and between CPUs (runtime/math.h has ours). Usage: check_math.sh LIBRARY.a…
set -uo pipefail
[ $# -gt 0 ] || { echo "usage: check_math.sh LIBRARY.a…" >&2; exit 2; }
symbols=$(nm -A --undefined-only "$@" 2> /dev/null)
[ -n "$symbols" ] || { echo "no symbols in $*"; exit 2; }
found=$(grep -E ' U (exp|exp2|expm1|log|log2|log1p|pow|sin|cos|tan|sincos|tanh|sinh|cosh|erf|erfc|cbrt|atan|atan2|[lt]gamma)[fl]?$' <<< "$symbols")
[ -z "$found" ] || { echo "$found"; echo "use runtime/math.h instead of these functions"; exit 1; }
