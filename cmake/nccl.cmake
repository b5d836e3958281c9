# Where nccl.h is: a folder the user names, the system, CUDA's folder, or the wheel that scripts/setup unpacked.
set(SHUNT_NCCL_INCLUDE_DIR "" CACHE PATH "Folder with nccl.h (2.28 or newer)")
if(NOT SHUNT_NCCL_INCLUDE_DIR)
  find_path(SHUNT_NCCL_HEADER nccl.h
    PATHS ${CMAKE_SOURCE_DIR}/.deps/nvidia/nccl/include /usr/include /usr/local/include /usr/local/cuda/include
    NO_CACHE)
  if(NOT SHUNT_NCCL_HEADER)
    message(FATAL_ERROR "nccl.h not found: run scripts/setup, or pass -DSHUNT_NCCL_INCLUDE_DIR=<folder with nccl.h>")
  endif()
  set(SHUNT_NCCL_INCLUDE_DIR ${SHUNT_NCCL_HEADER} CACHE PATH "Folder with nccl.h (2.28 or newer)" FORCE)
endif()
file(STRINGS ${SHUNT_NCCL_INCLUDE_DIR}/nccl.h SHUNT_NCCL_CODE REGEX "^#define NCCL_VERSION_CODE ")
string(REGEX MATCH "[0-9]+" SHUNT_NCCL_CODE "${SHUNT_NCCL_CODE}")
if(SHUNT_NCCL_CODE LESS 22800)
  message(FATAL_ERROR "${SHUNT_NCCL_INCLUDE_DIR}/nccl.h is ${SHUNT_NCCL_CODE}; 2.28 or newer is needed: run scripts/setup")
endif()
message(STATUS "nccl.h ${SHUNT_NCCL_CODE} in ${SHUNT_NCCL_INCLUDE_DIR}")
