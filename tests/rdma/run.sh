# SPDX-License-Identifier: Apache-2.0
# run.sh - in the virtual machine: runs all tests on real verbs, even if one fails.
# usage: run.sh FOLDER BAD_KEY: the programs' folder, and the library made from bad_key.c
cd "$1" || exit 1
export RDMA_DEVICES=rxe0,rxe1 RDMA_BAD_KEY="$2" SHUNT_DEVICE=cpu
status=0
for program in rdma_verbs transport_network rdma_nodes; do
    echo "==== $program"
    ./$program || { status=1; echo "==== $program: failed"; }
done
exit $status
