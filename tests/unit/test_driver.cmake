# SPDX-License-Identifier: Apache-2.0
include(${CMAKE_CURRENT_LIST_DIR}/fakes.cmake)
# without the fake in the loader's path: what is said where there is no driver
add_test(NAME unit_driver_missing COMMAND unit_driver --filter no_driver/*)
set_tests_properties(unit_driver_missing PROPERTIES LABELS unit)
find_path(LATHE_CUDA_HEADER cuda.h HINTS /usr/local/cuda/include)
if(LATHE_CUDA_HEADER)
  target_compile_definitions(unit_driver PRIVATE LATHE_CUDA_HEADER="${LATHE_CUDA_HEADER}/cuda.h")
endif()
