# SPDX-License-Identifier: Apache-2.0
# Builds of transport/network/ with one protection removed, in which a test must fail: without it, the failure that a
# comment claims to prevent does happen. As in tests/algorithms/broken.cmake: the folder's objects, with one of them made
# from a changed file.

include(${CMAKE_SOURCE_DIR}/cmake/broken.cmake)

# add_broken(NAME PROGRAM TEST FILE FROM TO [FROM TO]...): the test TEST of PROGRAM alone, or all where it is "".
function(add_broken name program test file)
  set(target transport_broken_${name})
  set(path ${CMAKE_SOURCE_DIR}/transport/network/${file})
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/broken_${name}.c)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  shunt_break(text ${target} ${file} ${ARGN})
  file(GENERATE OUTPUT ${copy} CONTENT "${text}")
  add_executable(${target} ${copy} ${program}_test.c network_ranks.c strangers.c children.c
    $<FILTER:$<TARGET_OBJECTS:shunt_transport>,EXCLUDE,network/${file}.o>)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE shunt_options ${SHUNT_LIBRARIES} cmocka::cmocka Threads::Threads
    ${CMAKE_DL_LIBS} rt)
  target_compile_definitions(${target} PRIVATE LONG_S=5)
  target_compile_options(${target} PRIVATE -w)
  target_link_options(${target} PRIVATE $<$<STREQUAL:${program},listener>:-Wl,--wrap=accept4>
    $<$<STREQUAL:${program},network>:-Wl,--wrap=recv,--wrap=shutdown>)
  shunt_test(NAME transport.broken_${name} COMMAND ${target} ${test})
  set_tests_properties(transport.broken_${name} PROPERTIES LABELS unit WILL_FAIL TRUE)
endfunction()

# A rank that comes again is taken for a second one while its first connection's end has not been heard.
add_broken(come_again listener a_rank_may_come_again listener.c "!wire_ended(other->connection)" "true")
# A listener without descriptors spins.
add_broken(spinning listener no_descriptor_is_waited_for listener.c "listener->deaf_until_ns = wire_now_ns() + DEAF_MS"
  "listener->deaf_until_ns = 0 * DEAF_MS")
# Why the listener refused is lost where the record could not be written any more (and the rank does not call again).
add_broken(deaf_rank listener a_refusal_is_heard_though_writing_fails meeting.c
  "if (error == -ECANCELED || error == -ETIMEDOUT)" "if (error)" "MOST_CALLS = 8" "MOST_CALLS = 1")
# Strangers push out a peer whose hello has come.
add_broken(unheard network strangers_push_no_peer_out connect.c
  "i < MOST_CALLERS && " "i < 2 * MOST_CALLERS && ")
# A flag before the bytes that it stands for.
add_broken(early_flag network cut_connections_are_seen sockets.c
  "if (in_head && link->got == head && !is_sound(network, peer))"
  "if (in_head && link->got == head &&
      (!is_sound(network, peer) || (network->landing.flags[peer] = link->head.flag, false)))")
# Two threads that read from one connection.
add_broken(two_readers network a_second_thread_may_read network.c
  "return !atomic_flag_test_and_set_explicit(&network->reads, memory_order_acquire)" "return true")
# One that reads from a connection while another one ends it.
add_broken(early_close network a_cut_is_seen_by_both network.c "    take_turn(network)" "    (void)0")
# A put that takes the place of one that is under way.
add_broken(many_puts network slow_readers_are_waited_for network.c "given - link->sent == NET_PUTS" "given < link->sent")
# A process's copies of another one's sockets keep its connections alive.
add_broken(copied_socket meeting a_copy_keeps_no_connection wire.c "shutdown(socket, SHUT_RDWR)" "(void)0")
add_broken(inherited_socket meeting children_keep_no_connection wire.c "close(g_sockets[--g_count])" "g_count--")

if(SHUNT_VERBS_INCLUDE_DIR)
  # A flag before its data; a registration that ends before what writes there; a first write before the peer is ready;
  # data that is given back before it was read.
  add_broken(verbs_flag_first verbs "" verbs.c "data->next = &last" "last.next = data"
    "data ? data : &last, &bad" "&last, &bad")
  add_broken(verbs_memory_first verbs "" verbs.c "verbs_end(verbs, r)" "(void)r")
  add_broken(verbs_early_write verbs "" verbs_connect.c "error = error ? error : settle(&state)" "error = error")
  add_broken(verbs_early_sent verbs "" network.c "return network->link[peer].sent_flag;"
    "return network->link[peer].put[(network->link[peer].given + NET_PUTS - 1) % NET_PUTS].head.flag;")
  foreach(name flag_first memory_first early_write early_sent)
    target_compile_definitions(transport_broken_verbs_${name} PRIVATE FAKE="$<TARGET_FILE:fake_verbs>")
    add_dependencies(transport_broken_verbs_${name} fake_verbs)
  endforeach()
endif()
