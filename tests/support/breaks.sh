#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# breaks.sh - a test of a build with one protection removed: it must fail, and for the reason that the protection is there.
#
#   breaks.sh PATTERN COMMAND...     PATTERN: an extended regular expression; a line of the command's output matches it
#
# A race shows in most schedules, not in all, so the command runs until it fails like this, at most ten times. A command that
# does not end within BREAKS_SECONDS (default 100) says "out of time".
pattern=$1
shift
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    output=$(timeout "${BREAKS_SECONDS:-100}" "$@" 2>&1)
    status=$?
    [ $status -ne 124 ] || output=$(printf '%s\nout of time' "$output")
    printf '%s\n' "$output" | tail -n 40
    [ $status -ne 77 ] || exit 77
    if [ $status -ne 0 ] && printf '%s\n' "$output" | grep -Eq -- "$pattern"; then
        exit 0
    fi
    echo "breaks.sh: run $attempt ended with status $status, and no line that matches: $pattern"
done
exit 1
