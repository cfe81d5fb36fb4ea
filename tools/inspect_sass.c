/* SPDX-License-Identifier: Apache-2.0
 * Disassembly, by nvdisasm or cuobjdump of the CUDA toolkit. */
#include "inspect.h"

#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const struct {
    const char *program, *option;
} programs[] = {{"nvdisasm", "-c"},
                {"/usr/local/cuda/bin/nvdisasm", "-c"},
                {"cuobjdump", "-sass"},
                {"/usr/local/cuda/bin/cuobjdump", "-sass"}};

/* Runs PROGRAM OPTION PATH with its output to `out`; false where the program is not there. */
static bool run(const char *program, const char *option, const char *path, FILE *out, int *status) {
    char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)option, (char *)(uintptr_t)path,
                    NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    fflush(out);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO);
    const int error = posix_spawnp(&child, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return false;
    while (waitpid(child, status, 0) < 0)
        ;
    return !(WIFEXITED(*status) && WEXITSTATUS(*status) == 127);
}

static lathe_status disassemble(const char *path, FILE *out, lathe_message_buffer message) {
    for (size_t p = 0; p < sizeof programs / sizeof *programs; ++p) {
        int status = 0;
        if (!run(programs[p].program, programs[p].option, path, out, &status))
            continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            return LATHE_OK;
        return lathe_fail(message, LATHE_IO, "%s failed on %s", programs[p].program, path);
    }
    return lathe_fail(
        message, LATHE_NO_DEVICE,
        "neither nvdisasm nor cuobjdump is on the path or in /usr/local/cuda/bin: "
        "the CUDA toolkit has both, so has PyPI's triton (triton/backends/nvidia/bin); its "
        "nvidia-cuda-nvdisasm has the first");
}

lathe_status lathe_inspect_sass_kernel(const lathe_inspect_kernel *k, FILE *out,
                                       lathe_message_buffer message) {
    if (!k->artefact)
        return lathe_fail(message, LATHE_INVALID,
                          "%s is not in the cache; `lathe build` compiles it", k->kernel->name);
    return disassemble(k->artefact, out, message);
}

lathe_status lathe_inspect_sass(const lathe_inspect *in, FILE *out, lathe_message_buffer message) {
    lathe_status status = LATHE_OK;
    if (strcmp(in->table->arch, "host") == 0)
        return lathe_fail(message, LATHE_UNSUPPORTED,
                          "this directory is for the host device, which has no SASS");
    for (int k = 0; k < in->table->kernel_count && status == LATHE_OK; ++k) {
        const lathe_inspect_kernel *kernel = &in->kernels[k];
        if (!lathe_inspect_shows(in, kernel))
            continue;
        if (kernel->artefact)
            fprintf(out, "// %s, %s\n", kernel->kernel->name, kernel->tactic->name);
        status = lathe_inspect_sass_kernel(kernel, out, message);
    }
    return status;
}
