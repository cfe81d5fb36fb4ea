# SPDX-License-Identifier: Apache-2.0
include(${CMAKE_CURRENT_LIST_DIR}/fakes.cmake)
add_dependencies(unit_nvrtc lathe)
target_compile_definitions(unit_nvrtc PRIVATE LATHE_BINARY="$<TARGET_FILE:lathe>")
