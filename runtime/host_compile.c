/* SPDX-License-Identifier: Apache-2.0
 * Compiles a generated source for the host device, with the system's C++ compiler and no shell. */
#include "host_compile.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMON                                                                                     \
    "-std=c++17", "-x", "c++", "-O1", "-g1", "-shared", "-fPIC", "-ffp-contract=off",              \
        "-fno-math-errno"
#define ARGUMENTS 32

extern char **environ;
extern void __asan_init(void) __attribute__((weak));

bool lathe_host_sanitized(void) {
    return __asan_init != NULL;
}

static const char *command(void) {
    const char *chosen = getenv("CXX");
    return chosen && *chosen ? chosen : "c++";
}

const char *const *lathe_host_compile_options(bool sanitize) {
    static const char *const plain[] = {COMMON, NULL};
    static const char *const checked[] = {COMMON, "-fsanitize=address,undefined",
                                          "-fno-sanitize-recover=undefined",
                                          "-fno-omit-frame-pointer", NULL};
    return sanitize ? checked : plain;
}

/* Reads to the end, keeping what fits. */
static void read_all(int from, char *text, size_t bytes) {
    size_t used = 0;
    bool cut = false;
    char part[4096];
    ssize_t n;
    while ((n = read(from, part, sizeof part)) > 0 || (n < 0 && errno == EINTR)) {
        if (n < 0)
            continue;
        const size_t room = bytes - 1 - used;
        const size_t take = (size_t)n < room ? (size_t)n : room;
        memcpy(text + used, part, take);
        used += take;
        cut = cut || take < (size_t)n;
    }
    text[used] = '\0';
    if (cut && bytes > 4)
        memcpy(text + bytes - 4, "...", 4);
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int spawn(char *const arguments[], int output, pid_t *child) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, output, 1);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, output, 2);
    if (!error)
        error = posix_spawnp(child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* The exit status, or -1 with errno set where the program did not start. */
static int run(const char *const arguments[], char *text, size_t bytes) {
    int ends[2];
    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t child;
    /* The interface predates const; nothing is written through it. */
    const int error = spawn((char *const *)(uintptr_t)arguments, ends[1], &child);
    close(ends[1]);
    if (!error)
        read_all(ends[0], text, bytes);
    close(ends[0]);
    if (error) {
        errno = error;
        return -1;
    }
    errno = 0;
    return wait_for(child);
}

static lathe_status no_compiler(char *text, size_t bytes, int error) {
    snprintf(text, bytes, "no C++ compiler: %s does not start (%s); install one or name it in CXX",
             command(), strerror(error));
    return LATHE_NO_DEVICE;
}

lathe_status lathe_host_compiler_version(char *text, size_t bytes) {
    const char *const arguments[] = {command(), "--version", NULL};
    const int exit_status = run(arguments, text, bytes);
    if (exit_status != 0)
        return no_compiler(text, bytes, exit_status < 0 ? errno : ENOEXEC);
    text[strcspn(text, "\n")] = '\0';
    return LATHE_OK;
}

lathe_status lathe_host_compile(const lathe_host_compile_job *job, char *log, size_t log_bytes) {
    char prims[4096], includes[4096];
    const char *arguments[ARGUMENTS] = {command()};
    int count = 1;
    const int length = snprintf(prims, sizeof prims, "-I%s/prims/host", job->templates);
    if (length < 0 || (size_t)length >= sizeof prims) {
        snprintf(log, log_bytes, "the templates' path is too long: %s", job->templates);
        return LATHE_INVALID;
    }
    snprintf(includes, sizeof includes, "-I%s", job->templates);
    for (const char *const *option = lathe_host_compile_options(job->sanitize); *option; option++)
        arguments[count++] = *option;
    const char *const rest[] = {prims, includes, "-o", job->object, job->source, "-lm", NULL};
    for (int i = 0; rest[i]; i++)
        arguments[count++] = rest[i];
    const int exit_status = run(arguments, log, log_bytes);
    if (exit_status < 0 && errno != 0)
        return no_compiler(log, log_bytes, errno);
    if (exit_status == 127) /* what posix_spawn makes of a missing program on some systems */
        return no_compiler(log, log_bytes, ENOENT);
    if (exit_status != 0) {
        unlink(job->object);
        return LATHE_COMPILE;
    }
    return LATHE_OK;
}
