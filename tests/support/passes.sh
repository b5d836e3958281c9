#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# passes.sh RUNS COMMAND... - the command must succeed RUNS times. Its first failure ends this with the same status.
runs=$1
shift
while [ "$runs" -gt 0 ]; do
    "$@" || exit
    runs=$((runs - 1))
done
