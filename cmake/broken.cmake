# SPDX-License-Identifier: Apache-2.0
# For mutants: builds with one protection removed, in which a test must fail.

# shunt_break(TEXT TARGET FILE FROM TO [FROM TO]...): replace texts in the variable TEXT, the content of FILE. If one is
# missing, configuring fails.
function(shunt_break variable target file)
  set(text "${${variable}}")
  set(pairs ${ARGN})
  while(pairs)
    list(POP_FRONT pairs from to)
    string(FIND "${text}" "${from}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${target}: ${file} has no \"${from}\" any more")
    endif()
    string(REPLACE "${from}" "${to}" text "${text}")
  endwhile()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# breaks(CASE PATTERN): what the mutants that follow must break: a case of their test ("": all cases), in which an assertion
# fails whose text matches the regular expression. Unbroken twins run the same case under the same settings.
macro(breaks case pattern)
  set(breaks_case "${case}")
  set(breaks_pattern "${pattern}")
endmacro()

# shunt_breaks(NAME PROGRAM ARGUMENT...): the test of a mutant. One whose name, behind "broken_", is in the variable
# `breaks_racy` does not fail like this in each run of its case, and has ten. The others have `breaks_runs`, or one.
function(shunt_breaks name program)
  shunt_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/support/breaks.sh "${breaks_pattern}" $<TARGET_FILE:${program}> ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS unit)
  string(REGEX REPLACE ".*broken_" "" mutant ${name})
  if(mutant IN_LIST breaks_racy)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT BREAKS_RUNS=10)
  elseif(DEFINED breaks_runs)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT BREAKS_RUNS=${breaks_runs})
  endif()
endfunction()

# shunt_descriptors(TEXT FILE...): the lines of a registry.def with the algorithms of these files of kernels.
function(shunt_descriptors variable)
  set(text "/* none */\n")
  foreach(path IN LISTS ARGN)
    file(STRINGS ${CMAKE_SOURCE_DIR}/algorithms/${path}.cu lines REGEX "^[A-Z]+_DESCRIBE[A-Z_]*\\(")
    foreach(line IN LISTS lines)
      string(REGEX MATCH "alg_[a-z]+_[a-z_]+" symbol "${line}")
      string(APPEND text "ALG_ALGORITHM(${symbol})\n")
    endforeach()
  endforeach()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()
