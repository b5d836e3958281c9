# SPDX-License-Identifier: Apache-2.0
# The target cmocka::cmocka: the system's, or the copy in .deps/cmocka that scripts/setup keeps for machines without it.
# SHUNT_CMOCKA says whether there is one.
find_path(SHUNT_CMOCKA_INCLUDE cmocka.h)
find_library(SHUNT_CMOCKA_LIBRARY cmocka)
if(NOT SHUNT_CMOCKA_INCLUDE OR NOT SHUNT_CMOCKA_LIBRARY)
  find_path(SHUNT_CMOCKA_INCLUDE cmocka.h PATHS "${CMAKE_SOURCE_DIR}/.deps/cmocka/include" NO_DEFAULT_PATH)
  find_library(SHUNT_CMOCKA_LIBRARY cmocka PATHS "${CMAKE_SOURCE_DIR}/.deps/cmocka/lib" NO_DEFAULT_PATH)
endif()
mark_as_advanced(SHUNT_CMOCKA_INCLUDE SHUNT_CMOCKA_LIBRARY)
if(SHUNT_CMOCKA_INCLUDE AND SHUNT_CMOCKA_LIBRARY)
  set(SHUNT_CMOCKA ON)
  add_library(cmocka::cmocka UNKNOWN IMPORTED)
  set_target_properties(cmocka::cmocka PROPERTIES
    IMPORTED_LOCATION "${SHUNT_CMOCKA_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SHUNT_CMOCKA_INCLUDE}"
    INTERFACE_LINK_OPTIONS "-Wl,--wrap=_skip,--wrap=_cmocka_run_group_tests"
    INTERFACE_LINK_LIBRARIES test_skips)
  add_library(test_skips STATIC ${CMAKE_SOURCE_DIR}/tests/support/skips.c)
  target_include_directories(test_skips PRIVATE "${SHUNT_CMOCKA_INCLUDE}")
  target_compile_options(test_skips PRIVATE ${SHUNT_WARNINGS})
else()
  set(SHUNT_CMOCKA OFF)
endif()
