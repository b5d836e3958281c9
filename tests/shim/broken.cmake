# SPDX-License-Identifier: Apache-2.0
# Builds of shim/comm/grow.c with one protection removed, in which a test must fail, as in tests/transport/broken.cmake.
include(${CMAKE_SOURCE_DIR}/cmake/broken.cmake)

# add_broken(NAME FROM TO [FROM TO]...). shim.grow, unbroken, runs the same cases.
function(add_broken name)
  set(target shim_broken_${name})
  set(path ${CMAKE_SOURCE_DIR}/shim/comm/grow.c)
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/broken_${name}.c)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  shunt_break(text ${target} grow.c ${ARGN})
  file(GENERATE OUTPUT ${copy} CONTENT "${text}")
  add_executable(${target} ${copy} grow_test.c $<FILTER:$<TARGET_OBJECTS:shunt_shim>,EXCLUDE,comm/grow.c.o>
    $<TARGET_OBJECTS:shunt_selector> $<TARGET_OBJECTS:shunt_algorithms> $<TARGET_OBJECTS:shunt_transport>)
  if(SHUNT_CUDA)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:shunt_algorithms_cuda>)
  endif()
  target_link_libraries(${target} PRIVATE shunt_options cmocka::cmocka ${SHUNT_LIBRARIES})
  target_link_options(${target} PRIVATE ${grow_wraps})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  shunt_breaks(shim.broken_${name} ${target} ${breaks_case})
endfunction()

breaks(any_order "used before all had it")
# A rank uses a piece once it has mapped it itself.
add_broken(early "post(job, STAGE_OPENED, &error, sizeof(error))"
  "post(job, STAGE_OPENED, &error, sizeof(error)), alg_scratch_piece_end(job->comm->scratch, job->piece, true)")
breaks(memory_fails "used before all had it")
# A rank's failure is not heard.
add_broken(unheard "const int error = read_all(job, STAGE_OPENED, sizeof(int32_t), NULL)" "const int error = 0")
breaks(memory_fails "a yes beside a no")
# Each rank judges by its own success.
add_broken(own_verdict "grown = net_verdict(job->rendezvous) == NET_ATTACHED"
  "grown = net_read(job->rendezvous, stage_of(job, STAGE_OPENED), comm->rank, job->offer, 4, &(size_t){0}) == 0 && !job->offer[0]")
breaks(suspends "not all pieces have come again")
# A resume that brings the first piece alone.
add_broken(half_resumed "    } else if (job->pieces) {" "    } else if (false) {" " && job->pieces == 0" "")
