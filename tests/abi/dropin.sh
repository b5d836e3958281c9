# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# dropin.sh - what every drop-in library must be; sourced by the tests of exported names.
failed=0

# fail_if_any WHAT FILE: each line of FILE is a fault.
fail_if_any() {
    if [ -s "$2" ]; then
        echo "$1:"
        sed 's/^/    /' "$2"
        failed=1
    fi
}

# fail_unless_dropin LIBRARY FOLDER SONAME OWN LIBRARIES: it has that SONAME, no text relocations and no executable stack,
# needs only these libraries, and calls its own functions directly, whose names match OWN: by name, another library in the
# global scope would get the calls. LIBRARIES and OWN are regular expressions; FOLDER is for files.
fail_unless_dropin() {
    readelf -dW "$1" > "$2/dynamic"
    grep 'SONAME' "$2/dynamic" | grep -vF "[$3]" > "$2/soname" || true
    grep -q 'SONAME' "$2/dynamic" || echo "none" > "$2/soname"
    fail_if_any "SONAME" "$2/soname"
    grep 'TEXTREL' "$2/dynamic" > "$2/textrel" || true
    fail_if_any "text relocations" "$2/textrel"
    sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' "$2/dynamic" | grep -vE "^($5)\.so\.[0-9]+$" > "$2/needed" || true
    fail_if_any "needs at run time" "$2/needed"
    readelf -rW "$1" | grep -oE "\b($4)\w+" | sort -u > "$2/interposed" || true
    fail_if_any "its own functions that it calls by name" "$2/interposed"
    readelf -lW "$1" | grep -E 'GNU_STACK.*E' > "$2/stack" || true
    fail_if_any "executable stack" "$2/stack"
}
