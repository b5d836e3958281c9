# SPDX-License-Identifier: Apache-2.0
# Where nccl.h is: a folder the user names, the system, CUDA's folder, or where scripts/nccl-header put it.
# One older than 2.28 is ignored.
set(SHUNT_NCCL_INCLUDE_DIR "" CACHE PATH "Folder with nccl.h (2.28 or newer)")

# Sets `code` to NCCL_VERSION_CODE of the header in `folder`, 0 if there is none.
function(shunt_nccl_code folder code)
  set(${code} 0 PARENT_SCOPE)
  if(EXISTS "${folder}/nccl.h")
    file(STRINGS "${folder}/nccl.h" line REGEX "^#define NCCL_VERSION_CODE ")
    if(line MATCHES "([0-9]+)")
      set(${code} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
endfunction()

if(SHUNT_NCCL_INCLUDE_DIR)
  shunt_nccl_code("${SHUNT_NCCL_INCLUDE_DIR}" SHUNT_NCCL_CODE)
  if(SHUNT_NCCL_CODE LESS 22800)
    message(FATAL_ERROR "SHUNT_NCCL_INCLUDE_DIR=${SHUNT_NCCL_INCLUDE_DIR}: no nccl.h of 2.28 or newer there")
  endif()
else()
  foreach(folder ${CUDAToolkit_INCLUDE_DIRS} /usr/include /usr/local/include /usr/local/cuda/include
      "${CMAKE_SOURCE_DIR}/.deps/nvidia/nccl/include")
    shunt_nccl_code("${folder}" SHUNT_NCCL_CODE)
    if(SHUNT_NCCL_CODE GREATER_EQUAL 22800)
      set(SHUNT_NCCL_INCLUDE_DIR "${folder}" CACHE PATH "Folder with nccl.h (2.28 or newer)" FORCE)
      break()
    endif()
  endforeach()
  if(NOT SHUNT_NCCL_INCLUDE_DIR)
    message(FATAL_ERROR
      "no nccl.h of 2.28 or newer: run scripts/setup, or pass -DSHUNT_NCCL_INCLUDE_DIR=<folder with nccl.h>")
  endif()
endif()
math(EXPR SHUNT_NCCL_MAJOR "${SHUNT_NCCL_CODE} / 10000")
math(EXPR SHUNT_NCCL_MINOR "${SHUNT_NCCL_CODE} / 100 % 100")
math(EXPR SHUNT_NCCL_PATCH "${SHUNT_NCCL_CODE} % 100")
set(SHUNT_NCCL_VERSION ${SHUNT_NCCL_MAJOR}.${SHUNT_NCCL_MINOR}.${SHUNT_NCCL_PATCH})
message(STATUS "Shunt: nccl.h ${SHUNT_NCCL_VERSION} in ${SHUNT_NCCL_INCLUDE_DIR}")
# A copy, so that its folder can be the first one that compilers search: an older nccl.h may lie beside CUDA's headers,
# and other headers beside this one (/usr/include) are not to come first.
set(SHUNT_NCCL_COPY_DIR "${CMAKE_BINARY_DIR}/include")
configure_file("${SHUNT_NCCL_INCLUDE_DIR}/nccl.h" "${SHUNT_NCCL_COPY_DIR}/nccl.h" COPYONLY)
