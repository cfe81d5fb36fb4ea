# SPDX-License-Identifier: Apache-2.0
include(${CMAKE_CURRENT_LIST_DIR}/fakes.cmake)
# The page in a browser, where there is one.
add_test(NAME inspect_page COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/inspect_page.sh $<TARGET_FILE:lathe>
                                   ${CMAKE_SOURCE_DIR}/generated/muse_spark-tp8-sm_90a)
set_tests_properties(inspect_page PROPERTIES LABELS unit SKIP_RETURN_CODE 77 TIMEOUT 120)
