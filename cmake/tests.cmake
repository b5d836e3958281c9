# SPDX-License-Identifier: Apache-2.0
# Every test can be skipped, which ctest shows and scripts/skips collects. A test says why in a line "skipped: REASON".

# shunt_test(NAME name COMMAND...): add_test for a test that ends with 77 if it, or a part of it, was skipped.
function(shunt_test keyword name)
  add_test(${keyword} ${name} ${ARGN})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# shunt_not_built(NAME REASON): a skipped test in place of those of a part that cannot be built here.
function(shunt_not_built name reason)
  shunt_test(NAME not_built.${name} COMMAND sh -c "echo 'skipped: ${reason}' && exit 77")
endfunction()
