# SPDX-License-Identifier: Apache-2.0
# run.sh - in the virtual machine: run each PROGRAM, all of them though one fails. usage: run.sh PROGRAM...
# Tests of the network by its own means take these (rdma_wish.h); the library finds its own.
export RDMA_DEVICES=rxe0,rxe1 SHUNT_DEVICE=host
status=0
for program; do
    echo "==== $(basename "$program")"
    "$program" || { status=1; echo "==== $(basename "$program"): failed"; }
done
exit $status
