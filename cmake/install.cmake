# SPDX-License-Identifier: Apache-2.0
# cmake --install: the libraries with their links, the audit library, the public header, the command with its manual
# page and its completions for shells, and a pkg-config file. The libraries and nccl.pc have a folder of their own.
install(TARGETS nccl nccl_ep shunt_audit LIBRARY DESTINATION ${SHUNT_INSTALL_LIBDIR})
install(TARGETS shunt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Compressed at configure time, as a file that cmake --install lists; without a time, so that packages are reproducible.
set(page docs/shunt.1)
find_program(SHUNT_GZIP gzip)
mark_as_advanced(SHUNT_GZIP)
if(SHUNT_GZIP)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
  execute_process(COMMAND ${SHUNT_GZIP} -n -9 -c ${page} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    OUTPUT_FILE ${CMAKE_BINARY_DIR}/shunt.1.gz COMMAND_ERROR_IS_FATAL ANY)
  set(page ${CMAKE_BINARY_DIR}/shunt.1.gz)
endif()
install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES packaging/completion/shunt.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME shunt)
install(FILES packaging/completion/_shunt DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES packaging/completion/shunt.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES include/shunt.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
# nccl.pc names the prefix relative to itself, so that an installed tree can be moved.
set(folder ${CMAKE_INSTALL_PREFIX}/${SHUNT_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH SHUNT_PC_PREFIX ${folder} ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/nccl.pc.in ${CMAKE_BINARY_DIR}/nccl.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/nccl.pc DESTINATION ${SHUNT_INSTALL_LIBDIR}/pkgconfig)
