#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nccl_tests.sh - NVIDIA's nccl-tests with Shunt preloaded.
#
#   NCCL_TESTS_DIR=<folder with all_reduce_perf> nccl_tests.sh [LIBRARY]
#
# Needs GPUs and a built nccl-tests; fetches nothing. LIBRARY is Shunt's libnccl.so.2 (default: of the newest
# build*/lib here). The parts, of which ONLY names those to run (default: all, in this order):
#
#   process        one process with all GPUs: every type and operator, 8 bytes to END (16M)
#   threads        the same, one thread a GPU
#   graphs         captured and replayed: one process, then one thread a GPU
#   registered     -R 1 (local registration) and -R 2 (symmetric windows); an old nccl-tests has neither
#   others         all-gather, reduce-scatter, broadcast, reduce, sendrecv, all-to-all: forwarded whole
#   mpi            one process a GPU; needs nccl-tests built with MPI and mpirun (NCCL_TESTS_MPI_DIR may name that
#                  build). Without them this says so; tests/gpu covers that shape, its cases run as processes too.
#
# The whole ends after LIMIT seconds (90); parts that this cuts off fail and say so. GPUS can be set. Each run is checked
# three ways: exit status, "Out of bounds values : 0 OK", and no row with a wrong count; those of all-reduce also that
# Shunt took calls. The last line is `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")/../.."
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 SHUNT_STATS=1

library=${1:-$(ls -t build*/lib/libnccl.so.2 2>/dev/null | head -n 1)}
tests=${NCCL_TESTS_DIR:-}
gpus=${GPUS:-$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')}
end=$((SECONDS + ${LIMIT:-90}))
if [ ! -x "$tests/all_reduce_perf" ]; then
    echo "NCCL_TESTS_DIR must name a folder with a built all_reduce_perf"
    exit 77
fi
if [ ! -e "$library" ] || [ "$gpus" -lt 2 ]; then
    echo "needs Shunt's libnccl.so.2 (found '$library') and two GPUs (found $gpus)"
    exit 77
fi
library=$(realpath "$library")
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Rows: size count type redop root time algbw busbw #wrong time algbw busbw #wrong
wrong_rows() {
    awk '$1 ~ /^[0-9]+$/ && NF >= 13 && (($9 != "0" && $9 != "N/A") || ($13 != "0" && $13 != "N/A"))' "$log"
}

# run TAKES NAME COMMAND...: TAKES is 1 where Shunt must have taken calls.
run() {
    local takes=$1 name=$2 status=0 why="" left=$((end - SECONDS))
    shift 2
    if [ "$left" -lt 2 ]; then
        why="not reached within ${LIMIT:-90} s"
    else
        LD_PRELOAD=$library timeout "$left" "$@" >"$log" 2>&1 || status=$?
        [ "$status" -eq 0 ] || why="status $status"
        grep -q 'Out of bounds values : 0 OK' "$log" || why="$why; no 'Out of bounds values : 0 OK'"
        [ -z "$(wrong_rows)" ] || why="$why; wrong rows: $(wrong_rows | head -n 3)"
        [ "$takes" = 0 ] || grep -q 'shunt: taken [1-9]' "$log" || why="$why; Shunt took no call"
    fi
    if [ -z "$why" ]; then
        passed=$((passed + 1))
        echo "ok $name: $(grep -h 'shunt: taken' "$log" | tail -n 1)"
        return
    fi
    failed=$((failed + 1))
    echo "FAILED $name: $why"
    [ "$left" -lt 2 ] || tail -n 15 "$log"
}

sizes=(-b 8 -e "${END:-16M}" -f 4)
all=(-d all -o all -n 2 -w 1)
few=(-d bfloat16 -o sum -n 5 -w 1)

part_process() {
    run 1 "one process, $gpus GPUs" "$tests/all_reduce_perf" "${sizes[@]}" "${all[@]}" -g "$gpus"
}

part_threads() {
    run 1 "one thread a GPU" "$tests/all_reduce_perf" "${sizes[@]}" "${all[@]}" -t "$gpus" -g 1
}

part_graphs() {
    run 1 "graphs, one process" "$tests/all_reduce_perf" "${sizes[@]}" "${few[@]}" -G 5 -g "$gpus"
    run 1 "graphs, threads" "$tests/all_reduce_perf" "${sizes[@]}" "${few[@]}" -G 5 -t "$gpus" -g 1
}

part_registered() {
    local mode
    for mode in 1 2; do
        if ! "$tests/all_reduce_perf" --help 2>&1 | grep -q -- '-R,'; then
            echo "note: this nccl-tests has no -R"
            return
        fi
        run 0 "registered, -R $mode" "$tests/all_reduce_perf" "${sizes[@]}" "${few[@]}" -R "$mode" -g "$gpus"
    done
}

part_others() {
    local other
    for other in all_gather_perf reduce_scatter_perf broadcast_perf reduce_perf sendrecv_perf alltoall_perf; do
        [ -x "$tests/$other" ] || continue
        run 0 "$other" "$tests/$other" -b 8 -e 1M -f 8 -n 2 -w 1 -g "$gpus"
    done
}

part_mpi() {
    local mpi=${NCCL_TESTS_MPI_DIR:-$tests}
    if command -v mpirun >/dev/null && ldd "$mpi/all_reduce_perf" 2>/dev/null | grep -q libmpi; then
        run 1 "one process a GPU" mpirun --allow-run-as-root -np "$gpus" -x LD_PRELOAD="$library" \
            "$mpi/all_reduce_perf" "${sizes[@]}" "${all[@]}" -g 1
    else
        echo "note: one process a GPU was not run (no mpirun, or nccl-tests without MPI); tests/gpu runs that shape"
    fi
}

for part in ${ONLY:-process threads graphs registered others mpi}; do
    case $part in
    process | threads | graphs | registered | others | mpi) "part_$part" ;;
    *)
        echo "there is no part $part"
        exit 2
        ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
