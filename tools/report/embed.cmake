# SPDX-License-Identifier: Apache-2.0
# cmake -DFROM=FOLDER -DTO=FILE -P embed.cmake: FOLDER/page.html with page.css and page.js in place of @CSS@ and @JS@, as the
# numbers of a C array. In hexadecimal throughout: CMake's lists and escapes never see the text.
foreach(kind html css js)
  file(READ ${FROM}/page.${kind} ${kind} HEX)
endforeach()
string(REPLACE "4043535340" "${css}" html "${html}") # @CSS@
string(REPLACE "404a5340" "${js}" html "${html}")    # @JS@
string(REGEX REPLACE "(..)" "0x\\1," html "${html}")
file(WRITE ${TO} "${html}0\n")
