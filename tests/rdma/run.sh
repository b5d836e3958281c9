# SPDX-License-Identifier: Apache-2.0
# run.sh - in the virtual machine: all tests on real verbs, each though one before it fails.
# usage: run.sh FOLDER BAD_KEY, where the programs are, and what bad_key.c became
cd "$1" || exit 1
export RDMA_DEVICES=rxe0,rxe1 RDMA_BAD_KEY="$2" SHUNT_DEVICE=host
status=0
for program in rdma_verbs transport_network rdma_hosts; do
    echo "==== $program"
    ./$program || { status=1; echo "==== $program: failed"; }
done
exit $status
