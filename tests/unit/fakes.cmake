# SPDX-License-Identifier: Apache-2.0
# For tests that run on the fakes of tests/fake: the driver through the loader's path, NVRTC by its folder.
add_dependencies(${target} fake_cuda fake_nvrtc fake_nccl)
target_compile_definitions(${target} PRIVATE LATHE_FAKE_DIR="${CMAKE_BINARY_DIR}/fake/nvrtc")
target_compile_definitions(${target} PRIVATE FAKE_CUDA="${CMAKE_BINARY_DIR}/fake/cuda/libcuda.so.1")
target_compile_definitions(${target} PRIVATE FAKE_NCCL="${CMAKE_BINARY_DIR}/fake/nccl/libnccl.so.2")
target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fake ${CMAKE_SOURCE_DIR}/tests/unit)
set_tests_properties(${target} PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/fake/cuda")
