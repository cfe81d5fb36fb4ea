# SPDX-License-Identifier: Apache-2.0
include(${CMAKE_CURRENT_LIST_DIR}/fakes.cmake)
add_dependencies(unit_processes lathe)
target_compile_definitions(unit_processes PRIVATE LATHE_BINARY="$<TARGET_FILE:lathe>")
set_property(TEST unit_processes APPEND PROPERTY ENVIRONMENT "LATHE_CACHE=${CMAKE_BINARY_DIR}/cache")
