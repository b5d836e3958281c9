#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# exports.sh SOURCE_FOLDER LIBRARY sanitizer=KIND
#
# libnccl_ep.so.0 exports the names of shim/ep/names.def and nothing else, and is a drop-in that needs only the C library
# (tests/abi/glibc.sh checks of which version). A sanitizer may add its own run time.
set -euo pipefail
source=$1 library=$2 sanitizer=${3#sanitizer=}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$source/tests/abi/dropin.sh"

sed -nE 's/^SHIM_EP_NAME\((\w+)\)$/ncclEp\1/p' "$source/shim/ep/names.def" | sort > "$work/table"
grep -oE '^ncclResult_t ncclEp\w+' "$source/shim/experts/nccl_ep.h" | cut -d' ' -f2 | sort > "$work/header"
nm -D --defined-only "$library" | awk '{print $NF}' | sort > "$work/exported"
[ "$(wc -l < "$work/table")" = 18 ]
diff "$work/table" "$work/header"
diff "$work/table" "$work/exported"

allowed='libc|libpthread|libdl|librt|libgcc_s|ld-linux-x86-64|ld-linux-aarch64'
[ -z "$sanitizer" ] || allowed="$allowed|libasan|libtsan|libubsan|liblsan|libm|libstdc\+\+"
fail_unless_dropin "$library" "$work" libnccl_ep.so.0 ncclEp "$allowed"
exit "$failed"
