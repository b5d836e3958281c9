#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# exports.sh SOURCE_FOLDER LIBRARY sanitizer=KIND
#
# libnccl_ep.so.0 exports the names of shim/ep/names.def and nothing else, has NVIDIA's SONAME, needs only the C library
# of glibc 2.28, and calls its own functions directly. A sanitizer may add its own run time.
set -euo pipefail
source=$1 library=$2 sanitizer=${3#sanitizer=}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed -nE 's/^SHIM_EP_NAME\((\w+)\)$/ncclEp\1/p' "$source/shim/ep/names.def" | sort > "$work/table"
grep -oE '^ncclResult_t ncclEp\w+' "$source/shim/experts/nccl_ep.h" | cut -d' ' -f2 | sort > "$work/header"
nm -D --defined-only "$library" | awk '{print $NF}' | sort > "$work/exported"
[ "$(wc -l < "$work/table")" = 18 ]
diff "$work/table" "$work/header"
diff "$work/table" "$work/exported"

readelf -dW "$library" > "$work/dynamic"
grep -qF 'Library soname: [libnccl_ep.so.0]' "$work/dynamic"
if grep -q TEXTREL "$work/dynamic" || readelf -lW "$library" | grep -qE 'GNU_STACK.*E'; then
    echo "text relocations, or an executable stack"
    exit 1
fi
if readelf -rW "$library" | grep -oE '\bncclEp\w+'; then
    echo "it calls these of its own functions by name"
    exit 1
fi
[ -z "$sanitizer" ] || exit 0
allowed='libc|libpthread|libdl|librt|libgcc_s|ld-linux-x86-64|ld-linux-aarch64'
if sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' "$work/dynamic" | grep -vE "^($allowed)\.so\.[0-9]+$"; then
    echo "it needs these at run time"
    exit 1
fi
older='dl\w+|pthread_\w+|[lf]?stat(64)?'
if nm -D --undefined-only "$library" | sed -nE 's/.* (\w+)@+GLIBC_2\.(29|[3-9][0-9])$/\1/p' | grep -vxE "$older"; then
    echo "glibc 2.28 lacks these"
    exit 1
fi
