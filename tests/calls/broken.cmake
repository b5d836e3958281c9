# SPDX-License-Identifier: Apache-2.0
# Builds of shim/ with one ordering removed, in which a case of a test must fail; the test itself is their unbroken twin.
# The changed file stands before the same one of the fake's library, which is then not linked.

include(${CMAKE_SOURCE_DIR}/cmake/broken.cmake)

# add_broken(NAME TEST FILE FROM TO [FROM TO]...)
function(add_broken name test file)
  set(target calls_broken_${name})
  set(path ${CMAKE_SOURCE_DIR}/shim/${file})
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/broken_${name}.c)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  shunt_break(text ${target} ${file} ${ARGN})
  file(GENERATE OUTPUT ${copy} CONTENT "${text}")
  add_executable(${target} ${test}_test.c ${copy})
  target_compile_options(${target} PRIVATE -w)
  target_link_libraries(${target} PRIVATE calls_fake)
  shunt_breaks(calls.broken_${name} ${target} ${breaks_case})
endfunction()

# Groups: kernels that do not wait for the communicator's calls before; streams that go on before the group's work has
# ended; a branch that begins before all communicators have joined; messages in the way of another communicator's work on
# their stream; collectives behind forwarded calls.
breaks(a_group_follows_the_calls_before_it "before & ALL_OF.i., ALL_OF.i... 0 != 0x1")
add_broken(group_enter cuda_groups call/group_launch.c "shim_order_enter(lead->comm, lead->stream, &lead->capture)" "0")
breaks(all_streams_of_a_group_join "fake_known.fake_stream.i.. & ALL_OF.6., ALL_OF.6... 0xf != 0x3f")
add_broken(group_spread cuda_groups call/group_launch.c "if (error == 0 && has_ours(lead))" "if (false)")
breaks(communicators_may_share_the_streams_of_a_group "before >> .first . owner")
add_broken(group_steps cuda_groups call/group_launch.c "g->use_count == 1 ? steps : 1" "steps")
breaks(communicators_may_share_a_stream "beside.first . i")
add_broken(group_shared messages call/group_launch.c "beside || shares_stream(g, lead)" "beside")
breaks(taken_and_forwarded_run_side_by_side "before >> first, ALL_OF.5... 0x7 != 0x1f")
add_broken(group_branch cuda_groups call/group_launch.c "#1 track->branched ? shim_branch_begin(&track->branch) : 0" "0")
# A launch that failed half way, of whose kernels no event tells the end.
breaks(a_call_that_launched_in_part_is_drained "shim_drain.comm, 1.")
add_broken(part_left cuda_failures call/launch.c "left = launch->joined ? 0 :" "left = launch->joined || error != 0 ? 0 :")
