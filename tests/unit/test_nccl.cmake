# SPDX-License-Identifier: Apache-2.0
include(${CMAKE_CURRENT_LIST_DIR}/fakes.cmake)
find_path(LATHE_NCCL_HEADER nccl.h HINTS /usr/local/cuda/include)
if(LATHE_NCCL_HEADER)
  target_compile_definitions(unit_nccl PRIVATE LATHE_NCCL_HEADER="${LATHE_NCCL_HEADER}/nccl.h")
  target_include_directories(unit_nccl SYSTEM PRIVATE ${LATHE_NCCL_HEADER} /usr/local/cuda/include)
endif()
