# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# common.sh - functions of the scripts in this folder; sourced, with the project's root as working directory.

# Tests and measurements use the built-in choice, unless they set a table: `shunt run` must not make one first.
export SHUNT_TUNE="${SHUNT_TUNE:-0}"

say() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
}

# Print the comment at the script's head, and end, if its first argument asks for help: before anything is set up or built.
answer_help() {
    case "${1:-}" in
    -h | --help)
        sed -n '3,/^[^#]/s/^# \{0,1\}//p' "scripts/$(basename "$0")"
        exit 0
        ;;
    esac
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# Print the path of an nvcc that cmake/cuda.cmake accepts, from PATH or CUDA's usual folder.
find_nvcc() {
    local place release
    for place in "$(command -v nvcc || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
        if [ -n "$place" ] && [ -x "$place" ]; then
            release=$("$place" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p' || true)
            if [ "${release:-0}" -ge 12 ]; then
                printf '%s\n' "$place"
                return 0
            fi
        fi
    done
    return 1
}

# Whether there is an nccl.h that cmake/nccl.cmake accepts.
nccl_header_is_new() {
    local folder code
    for folder in /usr/include /usr/local/include "${CUDA_HOME:-/usr/local/cuda}/include" \
        .deps/nvidia/nccl/include; do
        code=$(sed -n 's/^#define NCCL_VERSION_CODE \([0-9]*\).*/\1/p' "$folder/nccl.h" 2>/dev/null || true)
        if [ "${code:-0}" -ge 22800 ]; then
            return 0
        fi
    done
    return 1
}

# Print a line for each GPU that the driver lists.
list_gpus() {
    nvidia-smi -L 2>/dev/null | grep '^GPU ' || true
}

# Print the folder of PyTorch's NCCL, a package of the first Python in PATH: lib and include; fails if there is none.
pytorch_nccl() {
    python3 -c 'import importlib.util as util
print(list(util.find_spec("nvidia.nccl").submodule_search_locations)[0])' 2>/dev/null
}

# Print the CMake option that compiles only for this machine's GPUs; fails if none is new enough for the kernels. If one
# is newer than nvcc, print the option that restores the default, whose PTX runs on it.
gpu_option() {
    local found capability nvcc known=
    have nvidia-smi || return 1
    found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9]*\)\.\([0-9]\) *$/\1\2/p' |
        sort -un | awk '$1 >= 80') || return 1
    [ -n "$found" ] || return 1
    if nvcc=$(find_nvcc); then
        known=$("$nvcc" --list-gpu-code) || return 1
    fi
    for capability in $found; do
        if ! grep -qx "sm_$capability" <<<"$known"; then
            echo "-USHUNT_CUDA_ARCHITECTURES"
            return 0
        fi
    done
    printf -- '-DSHUNT_CUDA_ARCHITECTURES=%s\n' "$(sed 's/$/-real/' <<<"$found" | paste -sd ';')"
}

# configure PRESET [CMAKE OPTION...]: configure a build, with CUDA in the plain builds if nvcc is found; otherwise a
# line reports that. The tests are enabled unless an option disables them, since CMake would keep an earlier setting.
configure() {
    local preset=$1 cuda=() nvcc
    shift
    if [ "$preset" = release ] || [ "$preset" = quick ]; then
        if nvcc=$(find_nvcc); then
            cuda=(-DSHUNT_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc")
        else
            say "no nvcc (CUDA's compiler) of 12.0 or newer: building only the CPU device, without kernels for GPUs"
            cuda=(-DSHUNT_CUDA=OFF)
        fi
    fi
    cmake --preset "$preset" -DSHUNT_TESTS=ON "${cuda[@]}" "$@"
}
