/* SPDX-License-Identifier: Apache-2.0
 * An NVRTC that compiles nothing: its cubin is a mark and the source's length. A source that holds
 * #error fails with a log as NVRTC writes it; one that holds FAKE_SPILL spills. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

typedef struct {
    char name[128];
    char log[512];
    char cubin[192];
    char *text;
} program;

static fake_nvrtc state = {.major = 13};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

fake_nvrtc *fake_nvrtc_state(void) {
    return &state;
}

static int enter(const char *name) {
    pthread_mutex_lock(&lock);
    const int fails = ++state.calls == state.fail_at;
    if (fails)
        snprintf(state.failed, sizeof state.failed, "%s", name);
    pthread_mutex_unlock(&lock);
    return fails ? state.fail_result ? state.fail_result : 11 : 0;
}

int nvrtcVersion(int *major, int *minor);
const char *nvrtcGetErrorString(int result);
int nvrtcCreateProgram(program **p, const char *text, const char *name, int headers,
                       const char *const *texts, const char *const *names);
int nvrtcDestroyProgram(program **p);
int nvrtcCompileProgram(program *p, int count, const char *const *options);
int nvrtcGetCUBINSize(program *p, size_t *bytes);
int nvrtcGetCUBIN(program *p, char *to);
int nvrtcGetProgramLogSize(program *p, size_t *bytes);
int nvrtcGetProgramLog(program *p, char *to);

int nvrtcVersion(int *major, int *minor) {
    const int failed = enter(__func__);
    const char *env = getenv("FAKE_NVRTC_VERSION");
    if (env)
        sscanf(env, "%d.%d", &state.major, &state.minor);
    *major = state.major;
    *minor = state.minor;
    return failed;
}

const char *nvrtcGetErrorString(int result) {
    return result == 1 ? "NVRTC_ERROR_OUT_OF_MEMORY" : "NVRTC_ERROR_INTERNAL_ERROR";
}

int nvrtcCreateProgram(program **p, const char *text, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
    const int failed = enter(__func__);
    *p = NULL;
    for (int i = 0; i < headers; ++i)
        if (!texts[i] || !names[i] || !names[i][0])
            return 3;
    if (failed)
        return failed;
    *p = calloc(1, sizeof **p);
    snprintf((*p)->name, sizeof(*p)->name, "%s", name);
    (*p)->text = strdup(text);
    __atomic_fetch_add(&state.live, 1, __ATOMIC_SEQ_CST);
    return 0;
}

int nvrtcDestroyProgram(program **p) {
    free((*p)->text);
    free(*p);
    *p = NULL;
    __atomic_fetch_sub(&state.live, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void keep_options(int count, const char *const *options) {
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof state.options; ++i)
        used +=
            (size_t)snprintf(state.options + used, sizeof state.options - used, "%s ", options[i]);
}

int nvrtcCompileProgram(program *p, int count, const char *const *options) {
    const int failed = enter(__func__);
    if (failed)
        return failed;
    pthread_mutex_lock(&lock);
    state.compiles++;
    keep_options(count, options);
    pthread_mutex_unlock(&lock);
    const char *error = strstr(p->text, "#error");
    if (error) {
        int line = 1;
        for (const char *c = p->text; c < error; ++c)
            line += *c == '\n';
        snprintf(p->log, sizeof p->log, "%s(%d): error: #error directive\n\n1 error detected\n",
                 p->name, line);
        return 6;
    }
    const int spill = strstr(p->text, "FAKE_SPILL") ? 24 : 0;
    snprintf(
        p->log, sizeof p->log,
        "ptxas info    : Function properties for k\n"
        "ptxas         .     0 bytes stack frame, %d bytes spill stores, %d bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 0 barriers\n",
        spill, spill);
    snprintf(p->cubin, sizeof p->cubin, "fake cubin of %s, %zu bytes", p->name, strlen(p->text));
    return 0;
}

int nvrtcGetCUBINSize(program *p, size_t *bytes) {
    const int failed = enter(__func__);
    *bytes = strlen(p->cubin) + 1;
    return failed;
}

int nvrtcGetCUBIN(program *p, char *to) {
    strcpy(to, p->cubin);
    return enter(__func__);
}

int nvrtcGetProgramLogSize(program *p, size_t *bytes) {
    *bytes = strlen(p->log) + 1;
    return enter(__func__);
}

int nvrtcGetProgramLog(program *p, char *to) {
    strcpy(to, p->log);
    return enter(__func__);
}
