# SPDX-License-Identifier: Apache-2.0
# cpack: the Debian package `shunt`, from the tree as it was built. scripts/package calls it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shunt)
set(CPACK_PACKAGE_CONTACT "The Shunt project")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "drop-in NCCL with faster collectives between the GPUs of one node")
set(CPACK_PACKAGE_DESCRIPTION
  "The library lies in a folder of its own and replaces NCCL only in programs that `shunt run` starts.\n"
  " What it does not serve goes to the real NCCL, which it finds by itself.")
string(JOIN "" CPACK_PACKAGE_DESCRIPTION ${CPACK_PACKAGE_DESCRIPTION})
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# No other package may depend on this libnccl.so.2, so there is no shlibs file.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS OFF)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
include(CPack)
