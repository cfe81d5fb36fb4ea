/* SPDX-License-Identifier: Apache-2.0
 * Owns: the CUDA driver, taken by dlopen; driver.c is the only file that names its library. The few
 * types, numbers and prototypes that are used stand here, written from the documented interface, so
 * that nothing of the toolkit is needed to build. tests/unit/test_driver.c compares them with
 * cuda.h where there is one. */
#ifndef LATHE_DRIVER_H
#define LATHE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "log.h"

typedef int cu_result;
typedef int cu_device;
typedef unsigned long long cu_address;
typedef struct cu_context_handle *cu_context;
typedef struct cu_module_handle *cu_module;
typedef struct cu_function_handle *cu_function;
typedef struct cu_stream_handle *cu_stream;
typedef struct cu_event_handle *cu_event;
typedef struct cu_graph_handle *cu_graph;
typedef struct cu_graph_node_handle *cu_graph_node;
typedef struct cu_graph_exec_handle *cu_graph_exec;

enum {
    CU_OK = 0,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_READY = 600,
    CU_PEER_ALREADY_ENABLED = 704,
    CU_SHARED_OPENS_PEER = 1, /* mapping another process's memory enables what it needs */
    CU_STREAM_OWN_ORDER = 1,  /* not ordered with the default stream */
    CU_EVENT_WITH_TIME = 0,
    CU_EVENT_WITHOUT_TIME = 2,
    CU_CAPTURE_THREAD = 1, /* calls of other threads do not end a capture */
    CU_CAPTURE_ACTIVE = 1,
    CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    CU_ATTRIBUTE_MAJOR = 75,
    CU_ATTRIBUTE_MINOR = 76,
    CU_FUNCTION_DYNAMIC_SHARED = 8,
    CU_LAUNCH_COOPERATIVE = 2,
    CU_LAUNCH_PROGRAMMATIC = 6,
    CU_NODE_KERNEL = 0,
    CU_EDGE_PROGRAMMATIC = 1
};

typedef struct {
    char bytes[64];
} cu_shared_handle;

typedef struct {
    int id;
    int pad;
    union {
        int number; /* of both attributes used here */
        char bytes[64];
    } value;
} cu_launch_attribute;

typedef struct {
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int shared_bytes;
    cu_stream stream;
    cu_launch_attribute *attributes;
    unsigned int attribute_count;
} cu_launch_config;

typedef struct {
    unsigned char from_port;
    unsigned char to_port;
    unsigned char type;
    unsigned char reserved[5];
} cu_graph_edge;

typedef struct {
    cu_function function;
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int shared_bytes;
    void **parameters;
    void **extra;
    void *kernel;
    cu_context context;
} cu_kernel_params;

/* X(member, symbol, parameters) */
#define LATHE_DRIVER_CALLS(X)                                                                      \
    X(init, cuInit, (unsigned int flags))                                                          \
    X(driver_version, cuDriverGetVersion, (int *version))                                          \
    X(error_name, cuGetErrorName, (cu_result result, const char **name))                           \
    X(error_string, cuGetErrorString, (cu_result result, const char **text))                       \
    X(device_count, cuDeviceGetCount, (int *count))                                                \
    X(device_get, cuDeviceGet, (cu_device * device, int ordinal))                                  \
    X(device_name, cuDeviceGetName, (char *name, int size, cu_device device))                      \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, cu_device device))       \
    X(context_retain, cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))          \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (cu_device device))                           \
    X(peer_possible, cuDeviceCanAccessPeer, (int *possible, cu_device device, cu_device peer))     \
    X(peer_enable, cuCtxEnablePeerAccess, (cu_context peer, unsigned int flags))                   \
    X(context_set, cuCtxSetCurrent, (cu_context context))                                          \
    X(memory_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                               \
    X(memory_alloc, cuMemAlloc_v2, (cu_address * address, size_t bytes))                           \
    X(memory_free, cuMemFree_v2, (cu_address address))                                             \
    X(host_alloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned int flags))               \
    X(host_free, cuMemFreeHost, (void *memory))                                                    \
    X(memory_range, cuMemGetAddressRange_v2,                                                       \
      (cu_address * base, size_t * bytes, cu_address address))                                     \
    X(share, cuIpcGetMemHandle, (cu_shared_handle * handle, cu_address address))                   \
    X(shared_open, cuIpcOpenMemHandle_v2,                                                          \
      (cu_address * address, cu_shared_handle handle, unsigned int flags))                         \
    X(shared_close, cuIpcCloseMemHandle, (cu_address address))                                     \
    X(copy_in, cuMemcpyHtoDAsync_v2,                                                               \
      (cu_address to, const void *from, size_t bytes, cu_stream stream))                           \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, cu_address from, size_t bytes, cu_stream stream)) \
    X(fill, cuMemsetD8Async, (cu_address to, unsigned char byte, size_t bytes, cu_stream stream))  \
    X(module_load, cuModuleLoadData, (cu_module * module, const void *image))                      \
    X(module_unload, cuModuleUnload, (cu_module module))                                           \
    X(module_function, cuModuleGetFunction,                                                        \
      (cu_function * function, cu_module module, const char *name))                                \
    X(function_load, cuFuncLoad, (cu_function function))                                           \
    X(function_set, cuFuncSetAttribute, (cu_function function, int attribute, int value))          \
    X(launch, cuLaunchKernelEx,                                                                    \
      (const cu_launch_config *config, cu_function function, void **parameters, void **extra))     \
    X(stream_create, cuStreamCreate, (cu_stream * stream, unsigned int flags))                     \
    X(stream_destroy, cuStreamDestroy_v2, (cu_stream stream))                                      \
    X(stream_synchronize, cuStreamSynchronize, (cu_stream stream))                                 \
    X(stream_query, cuStreamQuery, (cu_stream stream))                                             \
    X(stream_wait, cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned int flags))      \
    X(event_create, cuEventCreate, (cu_event * event, unsigned int flags))                         \
    X(event_destroy, cuEventDestroy_v2, (cu_event event))                                          \
    X(event_synchronize, cuEventSynchronize, (cu_event event))                                     \
    X(event_elapsed, cuEventElapsedTime, (float *milliseconds, cu_event start, cu_event end))      \
    X(event_record, cuEventRecord, (cu_event event, cu_stream stream))                             \
    X(capture_begin, cuStreamBeginCapture_v2, (cu_stream stream, int mode))                        \
    X(capture_end, cuStreamEndCapture, (cu_stream stream, cu_graph * graph))                       \
    X(capture_info, cuStreamGetCaptureInfo_v3,                                                     \
      (cu_stream stream, int *status, uint64_t *id, cu_graph *graph, const cu_graph_node **waits,  \
       const cu_graph_edge **edges, size_t *count))                                                \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                              \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                            \
    X(graph_upload, cuGraphUpload, (cu_graph_exec exec, cu_stream stream))                         \
    X(graph_launch, cuGraphLaunch, (cu_graph_exec exec, cu_stream stream))                         \
    X(graph_exec_destroy, cuGraphExecDestroy, (cu_graph_exec exec))                                \
    X(graph_destroy, cuGraphDestroy, (cu_graph graph))                                             \
    X(graph_nodes, cuGraphGetNodes, (cu_graph graph, cu_graph_node * nodes, size_t * count))       \
    X(graph_edges, cuGraphGetEdges_v2,                                                             \
      (cu_graph graph, cu_graph_node * from, cu_graph_node * to, cu_graph_edge * edges,            \
       size_t * count))                                                                            \
    X(node_type, cuGraphNodeGetType, (cu_graph_node node, int *type))                              \
    X(node_params, cuGraphKernelNodeGetParams_v2, (cu_graph_node node, cu_kernel_params * params))

typedef struct {
    void *library;
    int version; /* 1000 * major + 10 * minor of the CUDA it knows */
#define LATHE_DRIVER_MEMBER(member, symbol, parameters) cu_result(*member) parameters;
    LATHE_DRIVER_CALLS(LATHE_DRIVER_MEMBER)
#undef LATHE_DRIVER_MEMBER
} lathe_driver;

/* Loads the driver and starts it. LATHE_NO_DEVICE with the reason where it is missing or too old.
 */
LATHE_CHECKED lathe_status lathe_driver_open(lathe_driver *driver, lathe_message_buffer message);
void lathe_driver_close(lathe_driver *driver);

/* "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)" and the status that it means. */
lathe_status lathe_driver_fail(const lathe_driver *driver, const char *call, cu_result result,
                               lathe_message_buffer message);

#endif
