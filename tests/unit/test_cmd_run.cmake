# SPDX-License-Identifier: Apache-2.0
set_tests_properties(unit_cmd_run PROPERTIES ENVIRONMENT "LATHE_CACHE=${CMAKE_BINARY_DIR}/cache")
add_dependencies(unit_cmd_run lathe)
target_compile_definitions(unit_cmd_run PRIVATE LATHE_BINARY="$<TARGET_FILE:lathe>")
