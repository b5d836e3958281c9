#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# exports.sh SOURCE_FOLDER LIBRARY installed=NCCL sanitizer=KIND
#
# Compares Shunt's library with real ones: the table and the committed list are equal; the library exports all of
# them, those of the installed NCCL (if any), and otherwise only shunt_* and shuntExperts; SONAME and run-time
# dependencies are those of a drop-in. A sanitizer may add its own run time.
set -euo pipefail
source=$1 library=$2 installed=${3#installed=} sanitizer=${4#sanitizer=}
here=$source/tests/abi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$here/dropin.sh"

sed -nE -e 's/^SHIM_(TREATED|FORWARD)\((\w+)\)$/\2\np\2/p' -e 's/^SHIM_FORWARD_ONLY\((\w+)\)$/\1/p' \
    "$source/shim/names/names.def" | sort > "$work/table"
grep -v '^#' "$here/nccl-names.txt" | cut -d' ' -f1 | sort > "$work/list"
nm -D --defined-only "$library" | awk '{print $NF}' | sort > "$work/exported"

uniq -d "$work/table" > "$work/twice"
comm -13 "$work/table" "$work/list" > "$work/not-in-table"
comm -23 "$work/table" "$work/list" > "$work/not-in-list"
comm -23 "$work/list" "$work/exported" > "$work/not-exported"
comm -13 "$work/list" "$work/exported" | grep -vE '^(shunt_.*|shuntExperts)$' > "$work/too-many" || true
fail_if_any "twice in shim/names/names.def" "$work/twice"
fail_if_any "a real NCCL exports, shim/names/names.def lacks" "$work/not-in-table"
fail_if_any "in shim/names/names.def, but no real NCCL exports it" "$work/not-in-list"
fail_if_any "not exported by $library" "$work/not-exported"
fail_if_any "exported by $library, and neither NCCL's nor Shunt's" "$work/too-many"

if [ -n "$installed" ]; then
    nm -D --defined-only "$installed" | awk '{print $NF}' | grep -E '^p?nccl' | sort > "$work/installed"
    comm -23 "$work/installed" "$work/exported" > "$work/not-as-installed"
    fail_if_any "exported by $installed, not by Shunt (a newer NCCL? run scripts/nccl-names)" "$work/not-as-installed"
fi

# A treated name and its pnccl alias have one body.
nm -D --defined-only "$library" | awk '{print $NF, $1}' > "$work/addresses"
sed -nE 's/^SHIM_TREATED\((\w+)\)$/\1/p' "$source/shim/names/names.def" |
    awk 'NR == FNR { at[$1] = $2; next } at[$1] != at["p" $1] { print $1 }' "$work/addresses" - > "$work/no-twin"
fail_if_any "treated, but pnccl is another function" "$work/no-twin"

allowed='libc|libpthread|libdl|librt|libm|libstdc\+\+|libgcc_s|ld-linux-x86-64|ld-linux-aarch64'
[ -z "$sanitizer" ] || allowed="$allowed|libasan|libtsan|libubsan|liblsan"
fail_unless_dropin "$library" "$work" libnccl.so.2 'p?nccl|shunt_' "$allowed"

[ "$failed" = 0 ] || exit 1
echo "$(wc -l < "$work/list") names of NCCL exported"
if [ -z "$installed" ]; then
    echo "skipped: no NCCL is installed to compare with"
    exit 77
fi
