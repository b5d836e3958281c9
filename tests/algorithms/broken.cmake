# SPDX-License-Identifier: Apache-2.0
# Builds of the kernels with one protection removed, in which the kernels' test must fail: without it, the failure that a
# comment claims to prevent does happen. A mutant is a copy of algorithms/ with one text replaced; if the text is
# missing, configuring fails.

include(${CMAKE_SOURCE_DIR}/cmake/broken.cmake)
file(GLOB_RECURSE kernel_sources RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/algorithms/*.h ${CMAKE_SOURCE_DIR}/algorithms/*.def ${CMAKE_SOURCE_DIR}/algorithms/*/*.cu
  ${CMAKE_SOURCE_DIR}/algorithms/nodes/*.c)
list(TRANSFORM kernel_sources PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE kernel_paths)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_paths})

# What no mutant changes.
add_library(broken_support OBJECT place.c ${support})
add_library(broken_rest OBJECT ${CMAKE_SOURCE_DIR}/algorithms/collective.c ${CMAKE_SOURCE_DIR}/algorithms/map.c)
target_link_libraries(broken_support PRIVATE shunt_options cmocka::cmocka)
target_link_libraries(broken_rest PRIVATE shunt_options)

# add_copy(TARGET TEST KERNELS [FILE FROM TO [FROM TO]... [AND FILE FROM TO...]]): a program of TEST_test.c and of a copy of
# the kernels, changed as FILE FROM TO says. KERNELS: a pattern of their names. Compiling them is most of the tests' time, so
# it names only those in which the test fails.
function(add_copy target test kernels)
  set(root ${CMAKE_CURRENT_BINARY_DIR}/broken/${target})
  set(files ${SHUNT_KERNELS})
  list(FILTER files INCLUDE REGEX "/(${kernels})$")
  shunt_descriptors(registry ${files})
  set(changed "")
  set(next AND)
  foreach(word IN LISTS ARGN)
    if(next STREQUAL "AND")
      list(APPEND changed ${word})
      set(changes_${word} "")
      set(next "")
    elseif(word STREQUAL "AND")
      set(next AND)
    else()
      list(GET changed -1 file)
      list(APPEND changes_${file} "${word}")
    endif()
  endforeach()
  foreach(source ${kernel_sources})
    file(READ ${CMAKE_SOURCE_DIR}/${source} text)
    if(source STREQUAL "algorithms/registry.def")
      set(text "${registry}")
    elseif(source STREQUAL "algorithms/device/dispatch.h")
      # Of the types those that world_draw_type has.
      foreach(type INT8 INT64 FLOAT64 BFLOAT16 FLOAT8_E4M3 FLOAT8_E5M2)
        string(REPLACE "reduce_kernel_of_type<A, P, ALG_${type}>(ops, nranks, whole)" "NULL" text "${text}")
      endforeach()
    endif()
    string(REPLACE "algorithms/" "" file ${source})
    if(file IN_LIST changed)
      shunt_break(text ${target} ${file} ${changes_${file}})
    endif()
    # Written only when it differs, so that a build stays up to date.
    set(old "")
    if(EXISTS ${root}/${source})
      file(READ ${root}/${source} old)
    endif()
    if(NOT old STREQUAL text)
      file(WRITE ${root}/${source} "${text}")
    endif()
  endforeach()
  set(options -USHUNT_HAS_CUDA -DSHUNT_HAS_CUDA=0 -Og -w)
  set(definitions PART)
  if(files MATCHES "pinned/|nodes/" OR target MATCHES "late_")
    list(APPEND definitions LANE_LATE_POSTS)
  endif()
  if(changed MATCHES "\\.c$") # a mutant of relay.c has the kernel of late_relay_posts
    set(compiled late_relay_posts_kernels)
  else()
    set(compiled ${target}_kernels)
    add_library(${compiled} OBJECT)
    foreach(path IN LISTS files)
      get_filename_component(name ${path} NAME)
      file(GENERATE OUTPUT ${root}/${name}.cpp CONTENT "#include \"algorithms/${path}.cu\"\n")
      target_sources(${compiled} PRIVATE ${root}/${name}.cpp)
    endforeach()
    target_include_directories(${compiled} BEFORE PRIVATE ${root})
    target_link_libraries(${compiled} PRIVATE shunt_options)
    target_compile_options(${compiled} PRIVATE ${options})
    target_compile_definitions(${compiled} PRIVATE ${definitions})
  endif()
  add_executable(${target} ${test}_test.c world.c ${CMAKE_SOURCE_DIR}/algorithms/registry.c $<TARGET_OBJECTS:${compiled}>
    $<TARGET_OBJECTS:broken_support> $<TARGET_OBJECTS:broken_rest>)
  target_include_directories(${target} BEFORE PRIVATE ${root})
  target_link_libraries(${target} PRIVATE shunt_options cmocka::cmocka Threads::Threads m)
  if(test STREQUAL "relay")
    target_sources(${target} PRIVATE ${root}/algorithms/nodes/proxy.c ${root}/algorithms/nodes/relay.c
      $<TARGET_OBJECTS:shunt_transport>)
    target_link_libraries(${target} PRIVATE ${SHUNT_LIBRARIES}) # of the transport
  endif()
  target_compile_options(${target} PRIVATE ${options})
  target_compile_definitions(${target} PRIVATE ${definitions})
endfunction()

# add_unbroken(TARGET CASE TEST KERNELS [FILE FROM TO...]): its test, of one case or ("") of all.
function(add_unbroken target case)
  add_copy(${target} ${ARGN})
  shunt_test(NAME algorithms.${target} COMMAND ${target} ${case})
  set_tests_properties(algorithms.${target} PROPERTIES LABELS unit)
endfunction()

# Mutants and their twins wait for a shorter time than the test, since some wait in vain; nothing else differs.
set(mutants_wait WAIT_NS=5000000000u)

# add_twin(TEST KERNELS): the unbroken build and test of the case that `breaks` names, once.
function(add_twin test kernels)
  string(MAKE_C_IDENTIFIER "twin_${test}_${kernels}" target)
  if(NOT TARGET ${target})
    add_copy(${target} ${test} "${kernels}")
    target_compile_definitions(${target} PRIVATE ${mutants_wait})
  endif()
  shunt_twin(algorithms.${target}.${breaks_case} ${target} ${breaks_case})
endfunction()

# add_broken(NAME TEST KERNELS FILE FROM TO [FROM TO]...)
function(add_broken name test kernels)
  add_copy(broken_${name} ${test} "${kernels}" ${ARGN})
  target_compile_definitions(broken_${name} PRIVATE ${mutants_wait})
  shunt_breaks(algorithms.broken_${name} broken_${name} ${breaks_case})
  if(NOT breaks_left_out)
    add_twin(${test} "${kernels}")
  endif()
endfunction()

# add_between(TARGET NETWORK_OBJECT): between_test.c with the folder's objects, of which network.cc's is the given one.
function(add_between target network)
  add_executable(${target} between_test.c world.c ${network} $<TARGET_OBJECTS:broken_support>
    "$<FILTER:${objects},EXCLUDE,nodes/network.cc.o>")
  target_link_libraries(${target} PRIVATE shunt_options cmocka::cmocka ${SHUNT_LIBRARIES} m)
  target_link_options(${target} PRIVATE -Wl,--wrap=sendmsg)
  target_compile_options(${target} PRIVATE -Og -w)
  target_compile_definitions(${target} PRIVATE ${mutants_wait})
endfunction()

# add_broken_network(NAME FROM TO [FROM TO]...): of nodes/network.cc; and once an unbroken twin.
function(add_broken_network name)
  set(target broken_network_${name})
  set(path ${CMAKE_SOURCE_DIR}/algorithms/nodes/network.cc)
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/broken_network_${name}.cc)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  shunt_break(text ${target} nodes/network.cc ${ARGN})
  file(GENERATE OUTPUT ${copy} CONTENT "${text}")
  add_between(${target} ${copy})
  shunt_breaks(algorithms.${target} ${target} ${breaks_case})
  if(NOT TARGET twin_between)
    add_between(twin_between ${path})
  endif()
  shunt_twin(algorithms.twin_between.${breaks_case} twin_between ${breaks_case})
endfunction()

# What a mutant shows. Most have wrong data; a rank that waits for the others' next data then ends the call, too, so the
# status alone proves nothing. With some, what a rank waits for was overwritten or never comes: they can only wait in vain,
# until the time limit that their twins have, too; with a few the schedule decides which of both it is. Between nodes a peer
# may have left too early. A crash is none of these.
set(wrong "((element|byte) [0-9]+ |averaged to |is wrong)")
set(hangs ": status 1")
set(either "(${wrong}|${hangs})")
set(parted ": status 4")
# Races, measured: of ten runs, on two cores, one or more showed nothing, or something else.
set(breaks_racy early_epoch stale_escape series_between broadcast_no_notice reduce_no_notice false_credit bulk_false_credit
  long_false_credit no_count long_no_count relay_no_fence)
# Of the others about one run in a hundred waits in vain instead.
set(breaks_runs 3)
if(SHUNT_SANITIZE STREQUAL "")
  # Stores to pinned memory arrive late and in any order: kernels rely on no more order than PCIe gives. (Not under the
  # sanitizers, where it takes minutes.)
  add_unbroken(late_posts "" kernels "shm_.*")
  add_unbroken(late_messages "" messages pairs)
  breaks(each_algorithm "${wrong}")
  # A call that uses its predecessor's half writes where a slow peer still reads.
  add_broken(one_half kernels oneshot device/places.h "/ VEC), 1}" "/ VEC), 0}")
  # A word that is not re-armed passes for the next value.
  add_broken(no_rearm kernels oneshot device/slots.h "lane_rearm(data_at(j, k))" "(void)j")
  breaks(each_algorithm "${hangs}")
  # An epoch that moves on before every block has read it.
  add_broken(early_epoch kernels oneshot device/epoch.h "EPOCH_UNIT - 2 * (lane.grid_blocks - 1) : 2" "EPOCH_UNIT : 0")
  # A call's number that includes the shares of blocks that have left.
  add_broken(shares kernels staged device/epoch.h "epoch / EPOCH_UNIT * EPOCH_UNIT" "epoch")
  # Data that equals the sentinel is never seen.
  add_broken(unclean kernels oneshot device/mark.h "v.w[i] = SENTINEL >> 1" "(void)i")
  add_broken(unclean_integers kernels oneshot device/mark.h "if (mark_top(v) >= ESCAPED)" "if (false)")
  # An escape word that is not re-armed passes for the next one, which comes some time after its vector.
  set(escapes_late device/slots.h "if (escape != 0)" "if (escape != 0 && (rand() % 2 != 0 || usleep(1) == 0))"
    "#include \"algorithms/device/peers.h\"" "#include \"algorithms/device/peers.h\"\n#include <stdlib.h>\n#include <unistd.h>")
  add_unbroken(escapes_late each_algorithm kernels oneshot ${escapes_late})
  breaks(each_algorithm "${wrong}")
  add_broken(stale_escape kernels oneshot ${escapes_late} "lane_rearm_word(word)" "(void)word")
  breaks(slow_peers "status, ALG_STATUS_OK.. 0x1 != 0")
  # A time limit over several waits.
  add_broken(long_wait kernels oneshot device/slots.h "#1 lane_wait_begins(lane);" "")
  breaks(each_algorithm "${wrong}")
  # Integers of all-ones arrive as one less.
  add_broken(no_escape kernels oneshot device/slots.h "mark_unescape(x, escape);" "(void)x;")
  breaks(escapes_are_of_no_common_word "common.i.., alone")
  # Words of all-ones take the long way: of messages, and of all else.
  add_broken(plain escapes push_move device/mark.h "WHITE = ~0xff9d7fd3u" "WHITE = 0")
  add_broken(plain_messages escapes pairs sendrecv/alone.h "#all rows_whiten(y)" "(void)y")
  breaks(each_algorithm "${wrong}")
  # Every rank adds its own value first: different bits on every rank.
  add_broken(own_first kernels oneshot device/reduce.h "vec_select(ANY_ORDER || rank == 0, own, x[0])" "own"
    "vec_select(!ANY_ORDER && r == rank, own, other)" "x[r - 1]")
  breaks(short_messages "${wrong}")
  # The bits of an element: another order of summation, alike on every rank and at every place; one that begins with the
  # rank that owns the slice, as a ring's does; pieces that take their values from elsewhere; a NaN with the payload of a
  # rank's; a minimum's, mirrored.
  add_broken(bits_order bits oneshot device/reduce.h
    "vec_select(r < rank, x[r < N - 1 ? r : r - 1], x[r - 1])"
    "vec_select(nranks - r < rank, x[(nranks - r) % (N - 1)], x[(nranks - r - 1) % (N - 1)])"
    "ANY_ORDER && r == rank" "ANY_ORDER && nranks - r == rank")
  add_broken(bits_slices bits twoshot allreduce/twoshot.h
    "r.combine(x[b], team.rank, own[b])" "r.combine(x[b], 0, own[b])")
  breaks(long_messages "${wrong}")
  add_broken(bits_pieces bits push_reduce device/launch.h
    "(const uint8_t *)whole.input + at" "(const uint8_t *)whole.input + at / 2")
  breaks(short_messages "${wrong}")
  add_broken(bits_payload bits oneshot device/element.h "#all if (a != a)" "if (false)")
  add_broken(bits_mirrored bits oneshot device/input.h
    "E::pack(a, result)" "(E::pack(a, result), OPS == OPS_MAX && FLOATS ? vec_order(result, order) : (void)0)"
    "reduce_finish_floats<TYPE, OPS>(a, order)" "reduce_finish_floats<TYPE, OPS_SUM>(a, order)")
  breaks(each_algorithm "${wrong}")
  # A root that hears from no rank runs ahead, into a half that a slow peer still reads.
  add_broken(no_notice kernels push_move device/notice.h "others & ~received" "0")
  breaks(all_together "${either}")
  # Calls of a series: slots as long as a message overlap; a root stores over what a slow peer still reads, of its own
  # call before, of another collective's, of a call between; roots have the same notices; a block that comes late takes
  # its own call's word for its predecessor's.
  add_broken(series_slots parts push_move push/push_move.cu "call.slot_vectors, first" "w.vectors, first")
  add_broken(series_roots parts push_move device/series.h "before % SERIES_BROADCAST < series / SERIES_FIRST" "true")
  breaks(all_together "${wrong}")
  add_broken(series_kinds parts "push_.*" device/series.h
    "(before & SERIES_KIND) == (series & SERIES_KIND)" "(before & SERIES_KIND)")
  add_broken(series_between parts push_move device/series.h "epoch_base(s.word) == last" "epoch_base(s.word) <= last")
  breaks(all_together "${hangs}")
  add_broken(series_notices parts push_move push/push.h "at + call.root * notice_bytes(team.nranks)" "at")
  add_broken(series_shares parts push_move device/series.h "(lane.grid_blocks - 1)" "0" ": 1;" ": 0;")
  breaks(each_algorithm "${wrong}")
  # The same in two crossings: a root that gets no data; a rank whose slice is empty.
  add_broken(broadcast_no_notice kernels broadcast rooted/broadcast.cu
    "slices_notices(team, w.p, MARK_ESCAPE)" "notices_make(team, 0, ~0u, ~0u)")
  add_broken(reduce_no_notice kernels reduce rooted/reduce.cu
    "slices_notices(team, l.p, L::R::MARK)" "notices_make(team, 0, ~0u, ~0u)")
  breaks(calls_behind "ALG_STATUS_TIMEOUT : ALG_STATUS_PEER_LEFT.. 0 != 0x4")
  # A call behind one that was given up sends.
  add_broken(no_stop kernels oneshot device/epoch.h "return epoch & ALG_EPOCH_STOPPED" "return false && epoch")
  breaks(wrapped_epochs "${wrong}")
  # A flag not raised for long looks new.
  add_broken(stale_flag kernels staged allreduce/staged.cu
    "lane_flag(flag(team, team.rank, phase, r)) - value >= 2 * EPOCH_UNIT"
    "(int64_t)(lane_flag(flag(team, team.rank, phase, r)) - value) < 0")
  breaks(each_algorithm "${wrong}")
  # A reader that does not wait for its flag.
  add_broken(no_flag kernels staged allreduce/staged.cu
    "lane_flag(flag(team, team.rank, phase, r)) - value >= 2 * EPOCH_UNIT" "false")
  breaks(groups "${either}")
  # A sender that does not wait for credit.
  add_broken(no_credit messages pairs sendrecv/mixed.h
    "const uint32_t room = it.rows - p.ahead" "const uint32_t room = it.rows")
  breaks(running_ahead "status, ALG_STATUS_OK.. 0x1 != 0")
  add_broken(no_credit_alone messages pairs sendrecv/alone.h
    "while (r.sender().lacks_credit(j, r.share(rows, j)))" "while (false)")
  breaks(groups "${wrong}")
  # Credit for rows that are not armed again.
  add_broken(false_credit messages pairs sendrecv/ring.h
    "lane_raise(it.credit + j * step, next[j])" "lane_raise(it.credit + j * step, next[j] + it.rows)")
  breaks(groups "${hangs}")
  # No credit within a launch.
  add_broken(mean_credit messages pairs sendrecv/ring.h
    "lane_raise(it.credit + j * step, next[j])" "lane_raise(it.credit + j * step, 0)")
  # Credit for the first channel of a group alone.
  add_broken(group_credit messages pairs sendrecv/ring.h
    "lane_raise(it.credit + j * step, next[j])" "lane_raise(it.credit + 0 * step, next[j])")
  breaks(deposits "${hangs}")
  # A launch that does not begin with credit for what earlier ones have received.
  add_broken(no_tell messages pairs sendrecv/ring.h
    "lane_raise(it.credit + j * step, received[j])" "(void)received")
  breaks(groups "${wrong}")
  add_broken(no_ring_rearm messages pairs sendrecv/ring.h "lane_rearm(it.vector(count + b))" "(void)b")
  breaks(groups "${hangs}")
  add_broken(no_ring_rearm_alone messages pairs sendrecv/alone.h "lane_rearm(at[b])" "(void)b")
  breaks(groups "${wrong}")
  # A warp that waits in one of its items, for a peer that waits in another one.
  add_broken(one_item messages pairs sendrecv/mixed.h
    "if (!alone && !next_item(team, m, mine, workers, here, index, at, it, p))" "if (false)")
  breaks(a_rank_that_ended_a_call_is_not_missed "status, ALG_STATUS_OK.. 0x2 != 0")
  # A rank that has done its part of a collective and left; one that has, while others still send; a message that came
  # while its receiver was on the way to see that the sender is gone.
  add_broken(gone_ended gone "oneshot|pairs" device/lane_cpu.h "if (missed >> r & 1 &&" "if (false &&")
  breaks(a_rank_that_ended_a_call_is_not_missed "ALG_ENDED_OFFSET., ended.. 0x1 != 0x2")
  # The calls of a kernel count one by one, as they do where they are kernels of their own.
  add_broken(gone_parts gone push_move device/parts.h "p.call, p.count, stream" "p.call, 1, stream")
  breaks(messages_of_others_go_on "turn_of.w, 1, .*ALG_STATUS_OK.. 0x2 != 0")
  add_broken(gone_others gone pairs sendrecv/mixed.h "lane_awaits(lane, idle)" "lane_awaits(lane, ~0u)")
  breaks(what_was_sent_before_arrives "t.status, ALG_STATUS_OK.. 0x2 != 0")
  add_broken(gone_at_once gone pairs device/lane_cpu.h "missed = lane_missed(lane, team)"
    "missed = (lane.lost = team.control->gone | lane_stopped(team), lane_missed(lane, team))")
  breaks(groups "${hangs}")
  # Credit that overtakes the re-arming of a ring in pinned memory.
  add_broken(late_credit messages pairs sendrecv/ring.h "#2 lane_fence();" "")
  breaks(each_algorithm "${wrong}")
  # Bulk copies: a sender that does not wait for credit, or takes a first ring as given, where a slow peer still reads
  # what the last call sent; credit for what is not read; a reader that does not wait for its flag; flags of earlier
  # calls that count; a flag before its chunk is complete; a stage that is filled before it was read; a place of the
  # list that a role has yet to read; chunks that the last call has counted; a sender that waits before it has told.
  add_broken(bulk_no_credit kernels bulk_move bulk/roles.h "!credit()" "false")
  add_broken(bulk_no_entry kernels bulk_move bulk/roles.h "bulk_reached<N>(j, KIND, chunk)"
    "((KIND == BULK_CREDIT && chunk < j.plan.slots) || bulk_reached<N>(j, KIND, chunk))")
  add_broken(bulk_false_credit kernels bulk_move bulk/roles.h
    "#all BULK_CREDIT, chunk + j.plan.slots" "BULK_CREDIT, chunk + 2 * j.plan.slots")
  add_broken(bulk_no_flag kernels bulk_move bulk/roles.h "!bulk_arrived(j, w, arrived)" "false")
  add_broken(bulk_stale_flag kernels bulk_move bulk/walk.h "ahead < 2 * EPOCH_UNIT" "ahead % EPOCH_UNIT < EPOCH_UNIT / 2")
  add_broken(bulk_early_flag kernels bulk_move bulk/roles.h "bulk_done<LAG>(*j.out)" "bulk_read<LAG>(*j.out)")
  add_broken(bulk_early_stage kernels bulk_move bulk/roles.h "bulk_read<LAG>(*j.in)" "bulk_commit(*j.in)")
  breaks(each_algorithm "${hangs}")
  add_broken(bulk_list kernels bulk_move bulk/walk.h "n + BULK_TURNS - done <= BULK_PLACES" "true")
  breaks(each_algorithm "${wrong}")
  add_broken(bulk_taken kernels bulk_move bulk/walk.h "lane_write_own(bulk_taken(team), 0)" "")
  breaks(each_algorithm "${either}")
  add_broken(bulk_left kernels bulk_move bulk/roles.h "BULK_IDLE : finish()"
    "BULK_IDLE : (j.list.add(listed, BULK_NONE), ended = true, BULK_ENDED)")
  breaks(each_algorithm "${hangs}")
  add_broken(bulk_untold kernels bulk_move bulk/roles.h "if (done == issued)" "if (true)")
  add_broken(bulk_blocks kernels bulk_move bulk/walk.h "bulk_plan(team, bytes, slot);"
    "bulk_plan(team, bytes, slot), j.plan.slots -= call.blocks == 1;")
  # A sum where this rank has yet to send from: it loads late what it sends, behind the sums of what has arrived.
  set(loads_late bulk/roles.h "if (!bulk_free(*j.out, at))" "if (!bulk_free(*j.out, at) ||
      (j.team->rank == 0 && j.in_step == 0 && (j.list.told(BULK_ARRIVED) <= w.n || rand() % 64 != 0)))"
    "#include \"algorithms/bulk/walk.h\"" "#include \"algorithms/bulk/walk.h\"\n#include <stdlib.h>")
  add_unbroken(bulk_loads_late each_algorithm kernels bulk_add ${loads_late})
  breaks(each_algorithm "${wrong}")
  add_broken(bulk_in_place kernels bulk_add ${loads_late} AND bulk/bulk_add.cu "j.list.told(BULK_SENT) > w.n" "true")
  # A chunk that is stored before it is added.
  add_broken(bulk_unadded kernels bulk_add bulk/roles.h "CHANGED ? bulk_changed(r, at) : bulk_filled(r, at)" "bulk_filled(r, at)")
  breaks(mixed "${wrong}")
  # Slots where staged scatters, as soon as it has begun its next call.
  add_broken(bulk_staged kernels "bulk_move|staged" bulk/walk.h "team.staging_bytes / 2 + slot" "slot")
  # The same of long messages (tests/emulator/ has more); and a launch that begins with the numbers of the one before, a
  # gate that has no place for some peers.
  set(long messages bulk_messages sendrecv/long)
  breaks(groups "${wrong}")
  add_broken(long_no_credit ${long}.h "(direction == LONG_OUT ? ahead + m.slots : ahead) >= 0"
    "(direction == LONG_OUT ? 0 : ahead) >= 0")
  add_broken(long_no_flag ${long}.h "(direction == LONG_OUT ? ahead + m.slots : ahead) >= 0"
    "(direction == LONG_OUT ? ahead + m.slots : 0) >= 0")
  add_broken(long_false_credit ${long}_roles.h
    "lane_raise(j.flag(LONG_CREDIT, peer, j.team.rank, number), number)"
    "lane_raise(j.flag(LONG_CREDIT, peer, j.team.rank, number), number + j.m.slots)")
  add_broken(long_early_stage ${long}_roles.h "bulk_read<LAG>(*j.in)" "bulk_commit(*j.in)")
  breaks(groups "${hangs}")
  add_broken(long_untold ${long}_roles.h "if (done == issued)" "if (true)")
  breaks(groups "${wrong}")
  add_broken(long_no_count ${long}_roles.h "lane_add_own(j.own(LONG_COUNT + l * 8), j.m.chunks[l])" "")
  breaks(groups "${hangs}")
  add_broken(long_taken ${long}_roles.h "lane_write_own(j.own(LONG_TAKEN + l * LONG_LINE), 0)" "")
  add_broken(long_one_peer ${long}_roles.h "2 * lists > LONG_HELD ? 2 * lists : (uint32_t)LONG_HELD" "1")
  breaks(groups "${wrong}")
  # The next launch does not know the position in the ring.
  add_broken(no_count messages pairs sendrecv/ring.h "lane_write_own((uint64_t *)it.count, count)" "(void)count")
  breaks(each_algorithm "${hangs}")
  # A half whose last call a slow peer still reads; a tile of which some units have arrived; marks of 2^31 calls ago.
  add_broken(shm_one_half kernels shm_move pinned/outbox.h "half = epoch_half(team, epoch);" "half = 0;")
  breaks(each_algorithm "${wrong}")
  add_broken(shm_torn kernels shm_move pinned/outbox.h "wrong |= x.v[i].w[3] ^ mark;" "")
  breaks(stale_marks "turn_main.&turn.0.., ALG_STATUS_TIMEOUT.. 0 != 0x1")
  add_broken(shm_stale kernels shm_oneshot pinned/outbox.h "l.thread == 0 && at >= used" "false")
  breaks(each_algorithm "${wrong}")
  # A flag before its data; a reader that does not wait for it; chunks that replace one in use.
  add_broken(shm_no_fence kernels shm_copy pinned/chunks.h "lane_fence();" "")
  add_broken(shm_no_flag kernels shm_copy pinned/chunks.h
    "lane_flag(flag(team, team.rank, r)) - value >= 2 * EPOCH_UNIT" "false")
  add_broken(shm_few_chunks kernels shm_copy pinned/chunks.h "c % SHM_CHUNKS" "0 * c")
  add_broken(shm_few_sums kernels shm_staged pinned/chunks.h "c % SHM_SUMS" "0 * c")
  # The next call posts its first chunks where a slow peer still reads the last ones.
  add_broken(shm_one_area kernels shm_copy pinned/chunks.h "(epoch / EPOCH_UNIT & 1) * shm_area" "0 * shm_area")
  breaks(each_algorithm "${hangs}")
  # A root that hears from no rank runs ahead.
  add_broken(shm_no_notice kernels shm_move pinned/shm_move.cu
    "outbox_hear(lane, team, epoch, route_all(team) & ~self & ~from);" "")
  add_broken(shm_no_answer kernels shm_oneshot pinned/shm_oneshot.cu
    "outbox_hear(lane, team, epoch, route_all(team) & ~self);" "")
  add_unbroken(late_relay_posts "" relay exchange)
  breaks(nodes_of_one "${either}")
  # Between nodes: a slot whose last step a slow peer still reads, of the same call and of the one before; a step of
  # which one block's part is missing; its word before its data; a flag that is not waited for; an end before the last
  # step was sent; a peer that has left in good order, taken for one that is lost.
  add_broken(relay_few_slots relay exchange nodes/relay.h "RELAY_SLOTS = 2 * RELAY_AHEAD" "RELAY_SLOTS = 1")
  add_broken(relay_one_half relay exchange nodes/relay.h "((call)&1) * RELAY_SLOTS" "0 * RELAY_SLOTS")
  breaks(nodes_of_one "${wrong}")
  add_broken(relay_one_block relay exchange nodes/relay.c "b < blocks" "b < 1")
  add_broken(relay_no_fence relay exchange nodes/exchange.cu "lane_fence();" "")
  add_broken(relay_no_flag relay exchange nodes/exchange.cu
    "(seen = lane_flag(team.relay + RELAY_FLAGS + 8 * h)) < wanted" "false")
  breaks(nodes_may_end_at_once "${parted}")
  add_broken(relay_early_end relay exchange nodes/relay.c "alg_relay_flush(relay);" "")
  breaks(results_are_right "${wrong}")
  # The same of the other collectives: a half of the window that a slow peer still reads; a segment that has not come;
  # one that is put before the last one was sent; an end of which nobody is told.
  add_broken_network(one_half "(nodes->step & 1) * ALG" "0 * ALG" "(step & 1) * ALG" "0 * ALG")
  breaks(a_stopped_rank_tells_the_others "(${wrong}|of a stopped group: status 0)")
  add_broken_network(no_flag "__atomic_load_n(&nodes->flags[peer], __ATOMIC_ACQUIRE) >= nodes->step" "true")
  breaks(results_are_right "${parted}")
  add_broken_network(early_sent "net_network_sent(nodes->network, peer) >= nodes->step" "true")
  breaks(a_stopped_rank_tells_the_others "${hangs}")
  add_broken_network(silent_end "#1 net_network_close(nodes->network)" "(void)0")
  breaks(nodes_may_end_at_once "${parted}")
  add_broken(relay_early_loss relay exchange nodes/relay.c
    "__ATOMIC_RELAXED) < relay->last_tag)" "__ATOMIC_RELAXED) < RELAY_LOST)")
elseif(SHUNT_SANITIZE STREQUAL "thread")
  breaks(each_algorithm "ThreadSanitizer: data race")
  # Scatter and gather staging that move with the grid: a call stores where a slow peer still reads.
  add_broken(moving_staging kernels staged allreduce/staged.cu "phase * (team.staging_bytes / 2)"
    "(uint64_t)phase * (team.nranks - 1) * plan.channels * plan.rows * lanes * VEC")
endif()
