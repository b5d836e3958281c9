# cmake --install: the library with its links, the audit library, the public header, the command with its manual
# page, and a pkg-config file.
install(TARGETS nccl shunt_audit LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS shunt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES docs/shunt.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES include/shunt.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The way from the pkg-config file to the prefix, so that an installed tree can be moved.
file(RELATIVE_PATH SHUNT_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/nccl.pc.in ${CMAKE_BINARY_DIR}/nccl.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/nccl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
