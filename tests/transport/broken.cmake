# SPDX-License-Identifier: Apache-2.0
# Builds of transport/network/ with one protection taken out, in which its test must fail: what a comment claims to
# prevent does happen without it. As tests/algorithms/broken.cmake.
file(GLOB network_sources CONFIGURE_DEPENDS ${transport}/network/*.c)

# add_broken_network(NAME TEST FILE FROM TO)
function(add_broken_network name test file from to)
  set(target transport_broken_${name})
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/broken/${name}_${file})
  set(sources ${network_sources})
  list(REMOVE_ITEM sources ${transport}/network/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${transport}/network/${file})
  file(READ ${transport}/network/${file} text)
  string(FIND "${text}" "${from}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${target}: ${file} has no \"${from}\" any more")
  endif()
  string(REPLACE "${from}" "${to}" text "${text}")
  file(GENERATE OUTPUT ${copy} CONTENT "${text}")
  add_executable(${target} network_test.c children.c ${copy} ${sources} ${transport}/key.c ${transport}/lock.c
    ${transport}/descriptor_box.c ${transport}/process.c ${transport}/rendezvous.c ${transport}/reserve.c ${transport}/segment.c)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE LONG_S=5)
  target_compile_options(${target} PRIVATE -w)
  target_link_libraries(${target} PRIVATE cmocka::cmocka Threads::Threads ${CMAKE_DL_LIBS} rt)
  add_test(NAME transport.broken_${name} COMMAND ${target} ${test})
  set_tests_properties(transport.broken_${name} PROPERTIES LABELS unit WILL_FAIL TRUE)
endfunction()

# A rank that comes again is taken for a second one while its first connection's end has not been heard.
add_broken_network(come_again a_rank_may_come_again listener.c "!wire_ended(other->connection)" "true")
# Why the listener refused is lost where the record could not be written any more.
add_broken_network(deaf_rank a_refusal_is_heard_though_writing_fails meeting.c
  "if (error == -ECANCELED || error == -ETIMEDOUT)" "if (error)")
# A flag before the bytes that it stands for.
add_broken_network(early_flag cut_connections_are_seen sockets.c "if (in_head && link->got == head && !is_sound(network, peer))"
  "if (in_head && link->got == head &&
      (!is_sound(network, peer) || (network->landing.flags[peer] = link->in.flag, false)))")
# A process's copies of another one's sockets keep its connections alive.
add_broken_network(copied_socket a_copy_keeps_no_connection wire.c "shutdown(socket, SHUT_RDWR)" "(void)0")
add_broken_network(inherited_socket children_keep_no_connection wire.c "close(g_sockets[--g_count])" "g_count--")
