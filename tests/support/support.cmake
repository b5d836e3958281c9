# SPDX-License-Identifier: Apache-2.0
# The library shunt_test_support: reference, data, collectives, ranks. For tests that link libnccl.so.2 like any client.
if(TARGET shunt_test_support)
  return()
endif()
find_package(Threads REQUIRED)
set(support ${CMAKE_CURRENT_LIST_DIR})
add_library(shunt_test_support STATIC
  ${support}/reference.c ${support}/data.c ${support}/collective.c ${support}/ranks.c ${support}/call.c
  ${support}/message.c ${support}/mix.c)
target_include_directories(shunt_test_support PUBLIC ${support})
target_compile_options(shunt_test_support PRIVATE -ffp-contract=off)
target_link_libraries(shunt_test_support PUBLIC shunt_options nccl Threads::Threads ${CMAKE_DL_LIBS} m)
