#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang.sh - emulated kernels compile and link with clang, too: to it a specialised constant without `inline` is a definition
# in each file.
#
#   clang.sh CLANG FOLDER OPTION...     CLANG: a path, or one that ends with NOTFOUND; FOLDER: of copied kernels
case $1 in
*NOTFOUND)
    echo "skipped: no clang++"
    exit 77
    ;;
esac
clang=$1 folder=$2
shift 2
objects=$(mktemp -d) || exit 1
trap 'rm -rf "$objects"' EXIT
for source in "$folder"/*.cpp; do
    case $source in
    *_INT8.cpp | *_BFLOAT16.cpp) continue ;; # as _FLOAT32.cpp
    esac
    "$clang" -std=gnu++17 -O0 -w "$@" -c "$source" -o "$objects/$(basename "$source").o" || exit 1
done
"$clang" -nostdlib -r -o "$objects/all" "$objects"/*.o
