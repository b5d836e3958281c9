#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nccl_versions.sh - Shunt over other NCCLs: FOLDER... each with a libnccl.so.2 (of a wheel, say).
#
#   nccl_versions.sh [--library LIBRARY] FOLDER...
#
# Needs nm and python3 (standard library only); downloads nothing. LIBRARY is Shunt's libnccl.so.2 (default: of the
# newest build*/lib here). Without GPUs, for each folder: every nccl* and pnccl* name that NCCL exports, Shunt exports;
# Shunt opens it as the real one, by SHUNT_NCCL_PATH; and ncclGetVersion answers as that NCCL does. With two GPUs or
# more and NCCL_TESTS_DIR, then nccl_tests.sh over each: its parts ONLY (process graphs), LIMIT (45) seconds each. An
# NCCL too new for this machine's driver is reported by its own error. The last line is `N passed, N failed`.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=""
if [ "${1:-}" = --library ]; then
    library=${2:?}
    shift 2
fi
library=${library:-$(ls -t "$here"/../../build*/lib/libnccl.so.2 2>/dev/null | head -n 1)}
if [ ! -e "$library" ] || [ $# -eq 0 ]; then
    echo "usage: nccl_versions.sh [--library LIBRARY] FOLDER... (Shunt's library: '$library')"
    exit 77
fi
library=$(realpath "$library")
gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
passed=0
failed=0

# check WHAT COMMAND...
check() {
    local what=$1 text
    shift
    if text=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "ok $what: $(tail -n 1 <<<"$text")"
    else
        failed=$((failed + 1))
        echo "FAILED $what: $text"
    fi
}

names() {
    nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $NF); print $NF }' | grep -E '^p?nccl' | sort -u
}

exports() {
    local missing
    missing=$(comm -23 <(names "$1") <(names "$library"))
    [ -z "$missing" ] || { echo "not exported by Shunt: $missing"; return 1; }
    echo "$(names "$1" | wc -l) names"
}

# Two processes, since both libraries have the same name.
version() {
    python3 - "$1" <<'PYTHON'
import ctypes, sys
library, version = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
assert library.ncclGetVersion(ctypes.byref(version)) == 0
text = version.value
if hasattr(library, "shunt_nccl_path"):
    library.shunt_nccl_path.restype = ctypes.c_char_p
    text = f"{text} {library.shunt_nccl_path().decode()}"
print(text)
PYTHON
}

passes_through() {
    local own through real
    real=$(realpath "$1")
    own=$(version "$real") || { echo "$own"; return 1; }
    through=$(SHUNT_DEVICE=cuda SHUNT_NCCL_PATH=$1 version "$library") || { echo "$through"; return 1; }
    [ "$through" = "$own $real" ] || { echo "'$through', not '$own $real'"; return 1; }
    echo "$own"
}

for folder in "$@"; do
    real=$folder/libnccl.so.2
    if [ ! -e "$real" ]; then
        failed=$((failed + 1))
        echo "FAILED $folder: no libnccl.so.2"
        continue
    fi
    check "$folder exports" exports "$real"
    check "$folder ncclGetVersion" passes_through "$real"
    if [ "$gpus" -ge 2 ] && [ -n "${NCCL_TESTS_DIR:-}" ]; then
        check "$folder nccl-tests" env SHUNT_NCCL_PATH="$real" ONLY="${ONLY:-process graphs}" LIMIT="${LIMIT:-45}" \
            "$here/nccl_tests.sh" "$library"
    fi
done
[ "$gpus" -ge 2 ] && [ -n "${NCCL_TESTS_DIR:-}" ] || echo "note: nccl-tests was not run ($gpus GPUs, NCCL_TESTS_DIR='${NCCL_TESTS_DIR:-}')"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
