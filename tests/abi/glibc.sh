#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# glibc.sh SOURCE_FOLDER BINARY...
#
# The wheel's binaries run on glibc 2.28, as its tag manylinux_2_28 says: they need no newer version of a function, and
# those of glibc's libraries that had a function then.
set -euo pipefail
source=$1
shift
failed=0

# fail_if_any WHAT LINES: each line is a fault.
fail_if_any() {
    if [ -n "$2" ]; then
        echo "$1:"
        sed 's/^/    /' <<<"$2"
        failed=1
    fi
}

for binary; do
    name=$(basename "$binary")
    undefined=$(nm -D --undefined-only "$binary" | awk '{print $NF}' | sort)
    newest=$(grep -oE '@GLIBC_.*' <<<"$undefined" | sort -uV | tail -n 1)
    fail_if_any "$name needs of a newer glibc than 2.28 (cmake/glibc has the older version of such functions)" \
        "$(grep -E '@GLIBC_2\.(29|[3-9][0-9])$' <<<"$undefined" || true)"
    fail_if_any "$name needs of a newer dynamic linker" "$(readelf -VW "$binary" | grep -oE 'GLIBC_ABI_\w+' || true)"
    needed=$(readelf -dW "$binary" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
    for library in dl pthread rt; do
        grep -qE "^lib$library\.so\.[0-9]$" <<<"$needed" && continue
        fail_if_any "$name does not name lib$library, where glibc 2.28 has" \
            "$(grep -oE '\b(dl|pthread_|sem_|shm_)\w+' "$source/cmake/glibc/$library.S" |
                grep -xF -f - <(sed 's/@.*//' <<<"$undefined") || true)"
    done
    echo "$name: at most ${newest#@}"
done
exit "$failed"
