# SPDX-License-Identifier: Apache-2.0
# cpack runs it on the installed tree: Debian's zsh does not search /usr/share/zsh/site-functions.
set(zsh ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share/zsh)
file(RENAME ${zsh}/site-functions ${zsh}/vendor-completions)
