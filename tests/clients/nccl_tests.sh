#!/usr/bin/env bash
# nccl_tests.sh - NVIDIA's nccl-tests with Shunt preloaded: every type and operator, 8 bytes to 256 MB.
#
#   NCCL_TESTS_DIR=<folder with all_reduce_perf> nccl_tests.sh [LIBRARY]
#
# Needs GPUs and a built nccl-tests; fetches nothing. LIBRARY is Shunt's libnccl.so.2 (default: of the newest
# build*/lib here). Runs one process with all GPUs, one thread a GPU, and graphs. One process a GPU needs
# nccl-tests built with MPI and mpirun (NCCL_TESTS_MPI_DIR may name that build); without them this says so,
# and tests/gpu covers that shape (its cases run as processes too). GPUS, END (256M) and LIMIT (seconds of
# one run, 900) can be set. Each run is checked three ways: exit status, "Out of bounds values : 0 OK", and
# no row with a wrong count. The last line is `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")/../.."
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 SHUNT_STATS=1

library=${1:-$(ls -t build*/lib/libnccl.so.2 2>/dev/null | head -n 1)}
tests=${NCCL_TESTS_DIR:-}
gpus=${GPUS:-$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')}
limit=${LIMIT:-900}
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

# run NAME COMMAND...
run() {
    local name=$1 status=0 why=""
    shift
    LD_PRELOAD=$library timeout "$limit" "$@" >"$log" 2>&1 || status=$?
    [ "$status" -eq 0 ] || why="status $status"
    grep -q 'Out of bounds values : 0 OK' "$log" || why="$why; no 'Out of bounds values : 0 OK'"
    [ -z "$(wrong_rows)" ] || why="$why; wrong rows: $(wrong_rows | head -n 3)"
    grep -q 'shunt: taken [1-9]' "$log" || why="$why; Shunt took no call"
    if [ -z "$why" ]; then
        passed=$((passed + 1))
        echo "ok $name: $(grep -h 'shunt: taken' "$log" | tail -n 1)"
        return
    fi
    failed=$((failed + 1))
    echo "FAILED $name: $why"
    tail -n 15 "$log"
}

sizes=(-b 8 -e "${END:-256M}" -f 2)
all=(-d all -o all -n 2 -w 1)
run "one process, $gpus GPUs" "$tests/all_reduce_perf" "${sizes[@]}" "${all[@]}" -g "$gpus"
run "one thread a GPU" "$tests/all_reduce_perf" "${sizes[@]}" "${all[@]}" -t "$gpus" -g 1
run "graphs, one process" "$tests/all_reduce_perf" "${sizes[@]}" -d bfloat16 -o sum -n 5 -w 1 -G 5 -g "$gpus"
run "graphs, threads" "$tests/all_reduce_perf" "${sizes[@]}" -d float -o sum -n 5 -w 1 -G 5 -t "$gpus" -g 1
for other in all_gather_perf reduce_scatter_perf broadcast_perf sendrecv_perf; do
    [ -x "$tests/$other" ] || continue
    # forwarded whole: the library underneath must not suffer; nothing is there to take
    LD_PRELOAD=$library timeout "$limit" "$tests/$other" -b 8 -e 1M -f 8 -n 2 -w 1 -g "$gpus" >"$log" 2>&1 &&
        grep -q 'Out of bounds values : 0 OK' "$log"
    if [ $? -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $other"
    else
        failed=$((failed + 1))
        echo "FAILED $other"
        tail -n 15 "$log"
    fi
done

mpi=${NCCL_TESTS_MPI_DIR:-$tests}
if command -v mpirun >/dev/null && ldd "$mpi/all_reduce_perf" 2>/dev/null | grep -q libmpi; then
    run "one process a GPU" mpirun --allow-run-as-root -np "$gpus" -x LD_PRELOAD="$library" \
        "$mpi/all_reduce_perf" "${sizes[@]}" "${all[@]}" -g 1
else
    echo "note: one process a GPU was not run (no mpirun, or nccl-tests without MPI); tests/gpu runs that shape"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
