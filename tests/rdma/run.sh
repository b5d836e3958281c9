# SPDX-License-Identifier: Apache-2.0
# run.sh - in the virtual machine: all tests on real verbs, each though one before it fails.
# usage: run.sh FOLDER, which has the programs
cd "$1" || exit 1
status=0
run() {
    echo "==== $*"
    "$@" || { status=1; echo "==== $*: failed"; }
}
run ./rdma_verbs
run env SHUNT_IBV_SO=libibverbs.so.1 RDMA_DEVICES=rxe0,rxe1 ./transport_network
run env SHUNT_DEVICE=host ./rdma_hosts
exit $status
