# SPDX-License-Identifier: Apache-2.0
# run.sh - in the virtual machine: run each PROGRAM, all of them though one fails. usage: run.sh PROGRAM...
status=0
for program; do
    echo "==== $(basename "$program")"
    "$program" || { status=1; echo "==== $(basename "$program"): failed"; }
done
exit $status
