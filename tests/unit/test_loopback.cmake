# SPDX-License-Identifier: Apache-2.0
set_tests_properties(unit_loopback PROPERTIES ENVIRONMENT "LATHE_CACHE=${CMAKE_BINARY_DIR}/cache")
