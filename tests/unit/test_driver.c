/* SPDX-License-Identifier: Apache-2.0
 * The driver by dlopen: what is declared by hand equals cuda.h; what is missing or too old is said.
 */
#include "fakes.h"

#include "driver.h"

#ifdef LATHE_CUDA_HEADER
#include LATHE_CUDA_HEADER

#define SAME_FIELD(ours, our_field, theirs, their_field)                                           \
    _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field), #our_field)
#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define SAME_NUMBER(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME_SIZE(cu_launch_config, CUlaunchConfig);
SAME_FIELD(cu_launch_config, block, CUlaunchConfig, blockDimX);
SAME_FIELD(cu_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_FIELD(cu_launch_config, attributes, CUlaunchConfig, attrs);
SAME_FIELD(cu_launch_config, attribute_count, CUlaunchConfig, numAttrs);
SAME_SIZE(cu_launch_attribute, CUlaunchAttribute);
SAME_FIELD(cu_launch_attribute, value, CUlaunchAttribute, value);
SAME_SIZE(cu_graph_edge, CUgraphEdgeData);
SAME_FIELD(cu_graph_edge, type, CUgraphEdgeData, type);
SAME_SIZE(cu_kernel_params, CUDA_KERNEL_NODE_PARAMS);
SAME_FIELD(cu_kernel_params, grid, CUDA_KERNEL_NODE_PARAMS, gridDimX);
SAME_FIELD(cu_kernel_params, block, CUDA_KERNEL_NODE_PARAMS, blockDimX);
SAME_FIELD(cu_kernel_params, shared_bytes, CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
SAME_FIELD(cu_kernel_params, parameters, CUDA_KERNEL_NODE_PARAMS, kernelParams);
SAME_SIZE(cu_address, CUdeviceptr);
SAME_SIZE(cu_result, CUresult);
SAME_NUMBER(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(CU_STREAM_OWN_ORDER, CU_STREAM_NON_BLOCKING);
SAME_NUMBER(CU_EVENT_WITHOUT_TIME, CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(CU_CAPTURE_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_NUMBER(CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_NUMBER(CU_ATTRIBUTE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_NUMBER(CU_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_NUMBER(CU_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_NUMBER(CU_FUNCTION_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_NUMBER(CU_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME_NUMBER(CU_LAUNCH_PROGRAMMATIC, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME_NUMBER(CU_NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL);
SAME_NUMBER(CU_EDGE_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);

/* The header's macros turn a plain name into the symbol that it stands for. */
#define STRING(x) #x
#define SYMBOL(x) STRING(x)

Test(driver, symbols_are_those_of_the_header) {
    static const char *const plain[] = {SYMBOL(cuMemAlloc),
                                        SYMBOL(cuMemFree),
                                        SYMBOL(cuMemGetInfo),
                                        SYMBOL(cuMemcpyHtoDAsync),
                                        SYMBOL(cuMemcpyDtoHAsync),
                                        SYMBOL(cuStreamDestroy),
                                        SYMBOL(cuEventDestroy),
                                        SYMBOL(cuStreamBeginCapture),
                                        SYMBOL(cuGraphGetEdges),
                                        SYMBOL(cuStreamGetCaptureInfo),
                                        SYMBOL(cuGraphInstantiate),
                                        SYMBOL(cuGraphKernelNodeGetParams),
                                        SYMBOL(cuDevicePrimaryCtxRelease)};
#define NAME(member, symbol, parameters) " " #symbol " "
    const char *all = LATHE_DRIVER_CALLS(NAME);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; ++i) {
        char word[80];
        snprintf(word, sizeof word, " %s ", plain[i]);
        cr_expect(strstr(all, word), "%s is not in the table", plain[i]);
    }
}
#endif

static char message[1024];

static lathe_status create(int ordinal, lathe_device **device) {
    message[0] = '\0';
    return lathe_device_cuda_create(ordinal, device, message, sizeof message);
}

Test(driver, describes_the_device) {
    fake_cuda *fake = fake_cuda_open();
    lathe_device *d;
    cr_assert_eq(create(0, &d), LATHE_OK, "%s", message);
    cr_assert_str_eq(d->info.arch, "sm_90a");
    cr_assert_str_eq(d->info.name, "cuda");
    cr_assert_eq(d->info.multiprocessors, 132);
    cr_assert_eq(d->info.cuda_major, 13);
    cr_assert_str_eq(d->info.description, "Fake GPU 0, driver of CUDA 13.0");
    d->ops->destroy(d);
    cr_assert_eq(fake->live, 0);
}

Test(driver, memory_goes_in_and_out) {
    fake_cuda *fake = fake_cuda_open();
    lathe_device *d;
    void *memory;
    char text[8] = "";
    cr_assert_eq(create(0, &d), LATHE_OK);
    cr_assert_eq(d->ops->alloc(d, 8, &memory), LATHE_OK);
    cr_assert_eq(d->ops->fill(d, memory, 'x', 8), LATHE_OK);
    cr_assert_eq(d->ops->copy_in(d, memory, "abc", 3), LATHE_OK);
    cr_assert_eq(d->ops->copy_out(d, text, memory, 6), LATHE_OK);
    cr_assert_str_eq(text, "abcxxx");
    cr_assert_eq(d->ops->allocations(d), 1);
    cr_assert_eq(d->ops->synchronizations(d), (uint64_t)fake->synchronizations);
    d->ops->release(d, memory);
    d->ops->destroy(d);
    cr_assert_eq(fake->live, 0);
}

Test(driver, errors_carry_the_drivers_names) {
    fake_cuda *fake = fake_cuda_open();
    lathe_device *d;
    void *memory = (void *)&d;
    cr_assert_eq(create(0, &d), LATHE_OK);
    fake->fail_at = fake->calls + 1;
    fake->fail_result = CU_OUT_OF_MEMORY;
    cr_assert_eq(d->ops->alloc(d, 8, &memory), LATHE_NO_MEMORY);
    cr_assert_null(memory);
    cr_assert_str_eq(d->message, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2, out of memory)");
    fake->fail_at = fake->calls + 1;
    fake->fail_result = 0;
    cr_assert_eq(d->ops->synchronize(d), LATHE_DEVICE_FAULT);
    cr_assert_str_eq(d->message, "cuStreamSynchronize: CUDA_ERROR_UNKNOWN (999, unknown error)");
    d->ops->destroy(d);
}

Test(driver, old_drivers_are_named) {
    fake_cuda *fake = fake_cuda_open();
    lathe_device *d = (lathe_device *)&d;
    fake->version = 12020;
    cr_assert_eq(create(0, &d), LATHE_NO_DEVICE);
    cr_assert_null(d);
    cr_assert(strstr(message, "found") || strstr(message, "knows CUDA 12.2"), "%s", message);
    cr_assert(strstr(message, "580"), "%s", message);
}

Test(driver, no_device_and_wrong_number) {
    fake_cuda *fake = fake_cuda_open();
    lathe_device *d;
    cr_assert_eq(create(3, &d), LATHE_NO_DEVICE);
    cr_assert(strstr(message, "found number 3, allowed: 0 to 0"), "%s", message);
    fake->devices = 0;
    cr_assert_eq(create(0, &d), LATHE_NO_DEVICE);
    cr_assert(strstr(message, "CUDA_ERROR_NO_DEVICE"), "%s", message);
    cr_assert_eq(fake->live, 0);
}

Test(driver, unknown_architectures_are_named_plainly) {
    fake_cuda *fake = fake_cuda_open();
    lathe_device *d;
    fake->major = 8;
    fake->minor = 9;
    cr_assert_eq(create(0, &d), LATHE_OK);
    cr_assert_str_eq(d->info.arch, "sm_89");
    d->ops->destroy(d);
}

Test(no_driver, is_said) {
    void *there = dlopen("libcuda.so.1", RTLD_LAZY);
    if (there)
        cr_skip_test("a driver is here");
    lathe_device *d = (lathe_device *)&d;
    cr_assert_eq(create(0, &d), LATHE_NO_DEVICE);
    cr_assert_null(d);
    cr_assert(strstr(message, "there is no CUDA driver: libcuda.so.1"), "%s", message);
}
