# SPDX-License-Identifier: Apache-2.0
# Where NVTX's header is, which the CUDA toolkit has: SHUNT_NVTX_INCLUDE_DIR, also of builds without CUDA; not set: nowhere.
find_path(SHUNT_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include)
mark_as_advanced(SHUNT_NVTX_INCLUDE_DIR)
if(SHUNT_NVTX_INCLUDE_DIR)
  message(STATUS "Shunt: NVTX ranges, by the header in ${SHUNT_NVTX_INCLUDE_DIR}")
else()
  message(STATUS "Shunt: no NVTX ranges, since there is no nvtx3/nvToolsExt.h")
endif()
