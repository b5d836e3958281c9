#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# breaks.sh - a test of a build with one protection removed: it must fail, and for the reason that the protection is there.
#
#   breaks.sh PATTERN COMMAND...     PATTERN: an extended regular expression; a line of the command's output matches it
#
# A command that does not end within BREAKS_SECONDS (default 100) says "out of time".
pattern=$1
shift
output=$(timeout "${BREAKS_SECONDS:-100}" "$@" 2>&1)
status=$?
[ $status -ne 124 ] || output=$(printf '%s\nout of time' "$output")
printf '%s\n' "$output" | tail -n 40
[ $status -ne 77 ] || exit 77
if [ $status -eq 0 ]; then
    echo "breaks.sh: no assertion failed"
    exit 1
fi
if ! printf '%s\n' "$output" | grep -Eq -- "$pattern"; then
    echo "breaks.sh: failed (status $status), but no line matches: $pattern"
    exit 1
fi
