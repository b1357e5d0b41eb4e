/* A stand-in for libcuda.so.1: a GPU of 100 multiprocessors and 16 GiB, shared by MPS.
   A process is a client where CUDA_MPS_PIPE_DIRECTORY has a file "control". Variables change it:
   STANDIN_CUDA=threads (the limit of compute is ignored), memory (that of memory is),
   shared (a process without the daemon gets the GPU), full (no memory is free), broken (no GPU). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *fault) {
    const char *value = getenv("STANDIN_CUDA");
    return value && !strcmp(value, fault);
}

static int client(void) {
    char path[4096];
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(path, sizeof path, "%s/control", pipes ? pipes : "/tmp/nvidia-mps");
    return access(path, F_OK) == 0;
}

int cuInit(unsigned flags) { return flags || is("broken") ? 100 : 0; }

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = (void *)8;
    return device || (!client() && !is("shared")) ? 46 : 0;
}

int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    *value = client() && percent && !is("threads") ? atoi(percent) : 100;
    return attribute != 16 || device;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes) {
    const char *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    size_t most = (size_t)16 << 30;
    if (client() && limit && !is("memory"))
        most = (size_t)atol(strchr(limit, '=') + 1) << 20;
    *pointer = 4096;
    return bytes > most || is("full") ? 2 : 0;
}

int cuMemFree_v2(unsigned long long pointer) { return pointer != 4096; }
