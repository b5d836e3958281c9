#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nccl_tests.sh - NVIDIA's nccl-tests with Shunt preloaded.
#
#   NCCL_TESTS_DIR=<folder with all_reduce_perf> nccl_tests.sh [LIBRARY]
#
# Needs GPUs and a built nccl-tests; downloads nothing. LIBRARY is Shunt's libnccl.so.2 (default: of the newest
# build*/lib here). ONLY names the parts to run (default: all, in this order):
#
#   process        one process with all GPUs: every type and operator, 8 bytes to END (16M)
#   threads        the same, one thread a GPU
#   graphs         captured and replayed: one process, then one thread a GPU
#   registered     -R 1 (local registration) and -R 2 (symmetric windows); an old nccl-tests has neither
#   collectives    each of PROGRAMS (default: all but all_reduce): every type, operator and, for broadcast, root, 64 bytes
#                  to END; then, timed in graphs with bf16, Shunt beside NCCL alone. A row of the file TABLE each
#   mpi            one process a GPU; needs nccl-tests built with MPI and mpirun (NCCL_TESTS_MPI_DIR may name that
#                  build). Without them this says so; the cases of tests/gpu run as processes too.
#
# All ends after LIMIT seconds (90); parts that are cut off fail and say so. GPUS can be set. Each run is checked for its
# exit status, "Out of bounds values : 0 OK", rows with wrong counts, and (except `registered`) calls taken by Shunt.
# The last line is `N passed, N failed`.
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

# Rows: size count type redop root time algbw busbw #wrong time algbw busbw #wrong; hypercube's redop is empty.
wrong_rows() {
    awk '$1 ~ /^[0-9]+$/ && NF >= 12 && (($(NF - 4) != "0" && $(NF - 4) != "N/A") || ($NF != "0" && $NF != "N/A"))' "$log"
}

# run TAKES NAME COMMAND...: TAKES is 1 if Shunt must take calls.
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
        [ "$takes" = 0 ] || grep -q 'shunt: taken=[1-9]' "$log" || why="$why; Shunt took no call"
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

# busbw SIZE: from the log's row of that size, out of place.
busbw() {
    awk -v size="$1" '$1 == size && NF >= 12 { print $(NF - 5) }' "$log"
}

part_collectives() {
    local program options row name size sizes_timed=(65536 1048576 16777216)
    local timed=(-b 64K -e 16M -f 16 -d bfloat16 -o sum -n 20 -w 5 -c 0 -G 5 -t "$gpus" -g 1)
    local -A bandwidth
    if [ -n "${TABLE:-}" ] && [ ! -s "$TABLE" ]; then
        printf '# %s\n' "hardware: $gpus x $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)" \
            "command: ONLY=collectives tests/clients/nccl_tests.sh; NCCL's multicast off; busbw in GB/s, bf16, in graphs" \
            "each program: -b 64 -e ${END:-16M} -f 64 -d all -o all, in and out of place" >"$TABLE"
        echo "program,types,operators,roots,results,wrong,taken,forwarded,$(
            printf 'busbw_%s,nccl_busbw_%s,' 64K 64K 1M 1M 16M 16M | sed 's/,$//')" >>"$TABLE"
    fi
    for program in ${PROGRAMS:-all_gather reduce_scatter alltoall broadcast reduce gather scatter hypercube sendrecv}; do
        options=(-b 64 -e "${END:-16M}" -f 64 "${all[@]}" -g "$gpus")
        [ "$program" != broadcast ] || options+=(-r -1)
        [ "$program" != reduce ] || options+=(-r $((gpus - 1)))
        run 1 "$program" "$tests/${program}_perf" "${options[@]}"
        row="$program,$(awk '$1 ~ /^[0-9]+$/ && NF >= 12 {
            rows++
            types += !seen["type", $3]++
            operators += !seen["operator", $4]++
            roots += !seen["root", $(NF - 8)]++
            wrong += $(NF - 4) + $NF # N/A counts as 0
        } END { print types + 0 "," operators + 0 "," roots + 0 "," 2 * rows "," wrong + 0 }' "$log")"
        row+=",$(sed -n 's/.*shunt: taken=\([0-9]*\) forwarded=\([0-9]*\).*/\1,\2/p' "$log" | tail -n 1)"
        for name in shunt nccl; do
            for size in "${sizes_timed[@]}"; do bandwidth[$name$size]=; done
            [ "$((end - SECONDS))" -ge 2 ] || continue
            LD_PRELOAD=$([ "$name" = nccl ] || echo "$library") timeout $((end - SECONDS)) \
                "$tests/${program}_perf" "${timed[@]}" >"$log" 2>&1 || tail -n 5 "$log"
            for size in "${sizes_timed[@]}"; do bandwidth[$name$size]=$(busbw "$size"); done
        done
        for size in "${sizes_timed[@]}"; do row+=",${bandwidth[shunt$size]},${bandwidth[nccl$size]}"; done
        [ -z "${TABLE:-}" ] || echo "$row" >>"$TABLE"
        echo "$row"
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

for part in ${ONLY:-process threads graphs registered collectives mpi}; do
    case $part in
    process | threads | graphs | registered | collectives | mpi) "part_$part" ;;
    *)
        echo "there is no part $part"
        exit 2
        ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
