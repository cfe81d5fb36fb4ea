# SPDX-License-Identifier: Apache-2.0
set_tests_properties(unit_inject PROPERTIES ENVIRONMENT "LATHE_CACHE=${CMAKE_BINARY_DIR}/cache")
add_dependencies(unit_inject lathe)
target_compile_definitions(unit_inject PRIVATE LATHE_BINARY="$<TARGET_FILE:lathe>")
