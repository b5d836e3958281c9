# SPDX-License-Identifier: Apache-2.0
# Builds of transport/network/ with one protection removed, in which a test must fail: without it, the failure that a
# comment claims to prevent does happen. As in tests/algorithms/broken.cmake: the folder's objects, with one of them made
# from a changed file.

include(${CMAKE_SOURCE_DIR}/cmake/broken.cmake)
set(breaks_racy unlocked old_name) # a race of processes that does not show in each run

# add_one(TARGET PROGRAM FILE SOURCE): PROGRAM_test.c with the folder's objects, of which that of FILE is made from SOURCE.
function(add_one target program file source)
  add_executable(${target} ${source} ${program}_test.c network_ranks.c strangers.c children.c segments.c
    $<FILTER:$<TARGET_OBJECTS:shunt_transport>,EXCLUDE,/${file}.o>)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE shunt_options ${SHUNT_LIBRARIES} cmocka::cmocka Threads::Threads
    ${CMAKE_DL_LIBS} rt)
  target_compile_definitions(${target} PRIVATE LONG_S=5)
  target_compile_options(${target} PRIVATE -w)
  target_link_options(${target} PRIVATE $<$<STREQUAL:${program},listener>:-Wl,--wrap=accept4>
    $<$<STREQUAL:${program},network>:-Wl,--wrap=recv,--wrap=shutdown>)
  if(program STREQUAL "verbs")
    target_compile_definitions(${target} PRIVATE FAKE="$<TARGET_FILE:fake_verbs>")
    add_dependencies(${target} fake_verbs)
  endif()
endfunction()

# add_broken(NAME PROGRAM FILE FROM TO [FROM TO]... [TWIN FROM TO [FROM TO]...]): FILE is one of transport/ or of
# transport/network/. TWIN: its own twin has these changes, such as the mutant's delay, which remove no protection.
function(add_broken name program file)
  list(FIND ARGN TWIN end)
  list(SUBLIST ARGN 0 ${end} changes)
  set(target transport_broken_${name})
  file(GLOB path ${CMAKE_SOURCE_DIR}/transport/${file} ${CMAKE_SOURCE_DIR}/transport/network/${file})
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/broken_${name}.c)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  shunt_break(text ${target} ${file} ${changes})
  file(GENERATE OUTPUT ${copy} CONTENT "${text}")
  add_one(${target} ${program} ${file} ${copy})
  shunt_breaks(transport.broken_${name} ${target} ${breaks_case})
  if(breaks_left_out)
    return()
  endif()
  set_property(TEST transport.broken_${name} APPEND PROPERTY ENVIRONMENT BREAKS_SECONDS=10)
  if(file STREQUAL "segment.c") # it removes segments of living processes, those of other tests too
    set_tests_properties(transport.broken_${name} PROPERTIES RUN_SERIAL ON)
  endif()
  set(twin ${program})
  if(NOT end EQUAL -1)
    math(EXPR begin "${end} + 1")
    list(SUBLIST ARGN ${begin} -1 changes)
    file(READ ${path} text)
    shunt_break(text transport_twin_${name} ${file} ${changes})
    set(twin ${name})
    set(path ${CMAKE_CURRENT_BINARY_DIR}/twin_${name}.c)
    file(GENERATE OUTPUT ${path} CONTENT "${text}")
  endif()
  if(NOT TARGET transport_twin_${twin})
    add_one(transport_twin_${twin} ${program} ${file} ${path})
  endif()
  shunt_twin(transport.twin_${twin}.${breaks_case} transport_twin_${twin} ${breaks_case})
endfunction()

# A rank that comes again is taken for a second one while its first connection's end has not been heard.
breaks(a_rank_may_come_again "told_again, 0.. 0x11 != 0")
add_broken(come_again listener listener.c "!wire_ended(other->connection)" "true")
# A listener without descriptors spins.
breaks(no_descriptor_is_waited_for "tried <= naps")
add_broken(spinning listener listener.c "listener->deaf_until_ns = wire_now_ns() + DEAF_MS"
  "listener->deaf_until_ns = 0 * DEAF_MS")
# Why the listener refused is lost where the record could not be written any more (and the rank does not call again).
breaks(a_refusal_is_heard_though_writing_fails "&limit., -EEXIST.. .*!= 0xffffffffffffffef")
add_broken(deaf_rank listener meeting.c
  "if (error == -ECANCELED || error == -ETIMEDOUT)" "if (error)" "MOST_CALLS = 8" "MOST_CALLS = 1"
  TWIN "MOST_CALLS = 8" "MOST_CALLS = 1")
# Strangers push out a peer whose hello has come.
breaks(strangers_push_no_peer_out "recv.peer, &welcome.*. 0 != 0x8")
add_broken(unheard network connect.c
  "i < MOST_CALLERS && " "i < 2 * MOST_CALLERS && ")
# A flag before the bytes that it stands for.
breaks(cut_connections_are_seen "flag_of.&half.landing, 1., 0.. 0x1 != 0")
add_broken(early_flag network sockets.c
  "if (in_head && link->got == head && !is_sound(network, peer))"
  "if (in_head && link->got == head &&
      (!is_sound(network, peer) || (network->landing.flags[peer] = link->head.flag, false)))")
# Two threads that read from one connection.
breaks(a_second_thread_may_read "(pattern.p, rank, step, [bi].|is_through.network)")
add_broken(two_readers network network.c
  "return !atomic_flag_test_and_set_explicit(&network->reads, memory_order_acquire)" "return true")
# One that reads from a connection while another one ends it.
breaks(a_cut_is_seen_by_both "overlaps, 0.. 0x[1-9a] != 0")
add_broken(early_close network network.c "    take_turn(network)" "    (void)0")
# A put that takes the place of one that is under way.
breaks(slow_readers_are_waited_for "NET_PUTS . 1., -EBUSY.. .*!= 0xfffffffffffffff0")
add_broken(many_puts network network.c "given - link->sent == NET_PUTS" "given < link->sent")
# A process's copies of another one's sockets keep its connections alive.
breaks(a_copy_keeps_no_connection "out of time")
add_broken(copied_socket meeting wire.c "shutdown(socket, SHUT_RDWR)" "(void)0")
breaks(children_keep_no_connection "out of time")
add_broken(inherited_socket meeting wire.c "close(g_sockets[--g_count])" "g_count--")

# Segments: a joiner of another pid namespace that is taken for gone, or never; a dead segment that two replace at once,
# since neither locks it, or one has waited for the lock.
breaks(test_other_pid_namespace_counts_as_alive "net_count.rendezvous., 2.. 0x1 != 0x2")
add_broken(away_is_gone rendezvous_death segment.c "life.l_type == F_UNLCK" "true")
breaks(test_dead_container "net_count.rendezvous., 1.. 0x2 != 0x1")
add_broken(away_is_alive rendezvous_death segment.c "life.l_type == F_UNLCK" "false")
breaks(test_stale_is_replaced_once "child [0-9]+: signal 14")
add_broken(unlocked rendezvous_death segment.c "flock(fd, LOCK_EX | LOCK_NB) == 0" "true")
set(late_lock "int error = lock_file(named->fd)" "int error = (usleep(getpid() % 4 * 1000), lock_file(named->fd))")
add_broken(old_name rendezvous_death segment.c
  "    if (!name_means(named->name, named->device, named->inode)) {" "    if (false) {" ${late_lock} TWIN ${late_lock})
# A record that is read before it is whole; joiners that are counted after the ranks were checked; two verdicts; two
# joiners of one rank.
breaks(test_whole_way_in_processes "record.i. == peer")
add_broken(early_record rendezvous rendezvous.c "memcpy(own->bytes, record, size)"
  "(atomic_store(&own->posted, (uint32_t)size + 1), usleep(2000), memcpy(own->bytes, record, size))"
  TWIN "memcpy(own->bytes, record, size)" "(usleep(2000), memcpy(own->bytes, record, size))")
breaks(test_whole_way_in_processes "wait_stage.rendezvous, stage. == 0")
add_broken(late_whole rendezvous rendezvous.c "    if (whole)" "    if (usleep(2000), all_slots_posted(rendezvous, stage))"
  TWIN "    if (whole)" "    if (usleep(2000), whole)")
breaks(test_exactly_one_verdict "(seen.rank., seen.0.|net_decided.rendezvous)")
set(one_verdict "atomic_compare_exchange_strong(&segment_of(rendezvous)->verdict, &pending, word)")
add_broken(two_verdicts rendezvous rendezvous.c "${one_verdict}"
  "(usleep(1000 * (1 + rendezvous->slot)), atomic_store(&segment_of(rendezvous)->verdict, word), pending)"
  TWIN "${one_verdict}" "(usleep(1000 * (1 + rendezvous->slot)), ${one_verdict})")
breaks(test_ranks_are_checked "net_set_rank.b, 1, 2., -EEXIST.. 0 != 0xffffffffffffffef")
add_broken(two_of_a_rank rendezvous rendezvous.c
  "!atomic_compare_exchange_strong(&segment->slot_of[rank], &nobody, rendezvous->slot + 1)"
  "(atomic_store(&segment->slot_of[rank], rendezvous->slot + 1), nobody)")

# Locks at a fork: not taken, so that a child finds data half changed, or a lock shut; not given back.
breaks(a_child_finds_locks_open_and_data_whole "assert_int_equal.status, 0.. 0x(e|100) != 0")
add_broken(fork_unlocked lock lock.c "#all     for (net_lock_t *lock = list" "    for (net_lock_t *lock = NULL")
add_broken(fork_shut lock lock.c
  "    pthread_atfork(before_fork, after_fork, after_fork)" "    pthread_atfork(before_fork, after_fork, NULL)")

if(SHUNT_VERBS_INCLUDE_DIR)
  # A flag before its data; a registration that ends before what writes there; a first write before the peer is ready;
  # data that is given back before it was read.
  breaks(ports_are_chosen "pattern.p, rank, step, [bi].")
  add_broken(verbs_flag_first verbs verbs.c "data->next = &last" "last.next = data"
    "data ? data : &last, &bad" "&last, &bad")
  breaks(ports_are_chosen "not: !fake_is_alive")
  add_broken(verbs_memory_first verbs verbs.c "verbs_end(verbs, r)" "(void)r")
  breaks(ports_are_chosen "a first write did not get through")
  add_broken(verbs_early_write verbs verbs_connect.c "error = error ? error : exchange_usable(&state)" "error = error")
  breaks(ports_are_chosen "AHEAD_BYTES - step, step. == 0")
  add_broken(verbs_early_sent verbs network.c "return network->link[peer].sent_flag;"
    "return network->link[peer].put[(network->link[peer].given + NET_PUTS - 1) % NET_PUTS].head.flag;")
endif()
