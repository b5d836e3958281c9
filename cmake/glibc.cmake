# SPDX-License-Identifier: Apache-2.0
# Binaries that run on glibc 2.28, whichever newer glibc they are built with (x86-64, aarch64).
#
# Newer glibc has newer versions of old functions, and the linker takes the newest, as dlopen@GLIBC_2.34. The archive
# shunt_glibc has hidden functions of these names that jump to the version in glibc 2.28. So references of CUDA's archives
# and of the C run time are covered, too, and the sources know of nothing. The linker takes the members that a binary
# needs. The test abi_glibc names functions that are missing here.
include(CheckSymbolExists)
check_symbol_exists(__GLIBC__ features.h SHUNT_GLIBC)
if(SHUNT_GLIBC AND NOT SHUNT_SANITIZE) # a sanitizer has functions of these names itself
  add_library(shunt_glibc STATIC
    cmake/glibc/c23.S cmake/glibc/dl.S cmake/glibc/m.S cmake/glibc/pthread.S cmake/glibc/rt.S
    cmake/glibc/start.c cmake/glibc/stat.c)
  target_compile_options(shunt_glibc PRIVATE $<$<COMPILE_LANGUAGE:C>:${SHUNT_WARNINGS}>)
endif()

# shunt_old_glibc(target): to be called between the target's archives and libm, since the linker searches in that order.
# It also names the libraries in which glibc 2.28 has the functions. In newer glibc they are empty, and as needed none.
function(shunt_old_glibc target)
  if(TARGET shunt_glibc)
    target_link_libraries(${target} PRIVATE shunt_glibc
      -Wl,--push-state,--no-as-needed,-l:libdl.so.2,-l:libpthread.so.0,-l:librt.so.1,--pop-state)
  endif()
endfunction()
