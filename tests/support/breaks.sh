#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# breaks.sh - a test of a build with one protection removed: it must fail, and for the reason that the protection is there.
#
#   breaks.sh PATTERN COMMAND...     PATTERN: an extended regular expression; it matches the source line of an assertion
#                                    that failed, or a line of the command's output
#
# The command runs once, or until it fails like this, BREAKS_RUNS times at most: for races that do not show in each run of the
# test. It has BREAKS_SECONDS (default 100).
root=$(dirname "$0")/../..
pattern=$1
shift

# The source line of each assertion that cmocka says has failed, and the values that it compared.
failed_assertions() {
    printf '%s\n' "$output" | awk '
        sub(/^\[  ERROR   \] --- /, "") { values = $0 }
        /^\[   LINE   \] --- .*: error: Failure!/ { split($5, at, ":"); print at[1], at[2], values }' |
        while read -r file line values; do
            echo "breaks.sh: failed: $(sed -n "${line}s/^ *//p" "$root/tests/${file#*tests/}") $values"
        done
}

attempt=1
while [ $attempt -le "${BREAKS_RUNS:-1}" ]; do
    output=$(timeout "${BREAKS_SECONDS:-100}" "$@" 2>&1)
    status=$?
    assertions=$(failed_assertions)
    printf '%s\n' "$output" | tail -n 40
    [ -z "$assertions" ] || printf '%s\n' "$assertions"
    [ $status -ne 77 ] || exit 77
    [ $status -ne 124 ] || echo "breaks.sh: no end within ${BREAKS_SECONDS:-100} s"
    if [ $status -ne 0 ] && printf '%s\n' "$output" "$assertions" | grep -Eq -- "$pattern"; then
        echo "breaks.sh: found in run $attempt"
        exit 0
    fi
    echo "breaks.sh: run $attempt ended with status $status, and no line that matches: $pattern"
    attempt=$((attempt + 1))
done
exit 1
