/* SPDX-License-Identifier: Apache-2.0
 * lathe build: compiles every kernel of a generated directory into the cache. Needs no GPU. */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command_line.h"
#include "compile.h"
#include "generator.h"
#include "seconds.h"

const char lathe_cmd_build_summary[] = "compile every kernel of a generated directory";

static const char usage[] =
    "usage: lathe build DIR [--cache DIR] [--jobs N] [--device cuda|host] [--nvrtc PATH]\n"
    "                       [--allow-spills] [--list]\n"
    "\n"
    "Compiles what the cache lacks. A directory generated for --arch host, or --device host, is\n"
    "compiled by the system's C++ compiler, any other by NVRTC.\n"
    "\n"
    "  --cache DIR     default: $LATHE_CACHE, else $XDG_CACHE_HOME/lathe, else ~/.cache/lathe\n"
    "  --jobs N        compilers at once; default: one per processor\n"
    "  --nvrtc PATH    libnvrtc or its folder; default: $LATHE_NVRTC, else the usual places\n"
    "  --allow-spills  accept kernels that spill registers\n"
    "  --list          print each kernel, its tactic and its artefact\n";

typedef struct {
    const char *directory;
    lathe_compiler_options compiler;
    const char *device; /* NULL: as the directory says */
    bool list;
} build_options;

static int exit_status(lathe_status status) {
    switch (status) {
    case LATHE_OK:
        return LATHE_EXIT_OK;
    case LATHE_INVALID:
    case LATHE_IO:
    case LATHE_UNSUPPORTED:
    case LATHE_COMPILE:
    case LATHE_NO_DEVICE: /* no device takes part: a compiler is missing or too old */
        return LATHE_EXIT_USAGE;
    default:
        return LATHE_EXIT_DEVICE;
    }
}

/* Warnings always; progress on a terminal only, in place. */
static void log_line(void *context, lathe_log_kind kind, const char *text, int done, int total) {
    const bool terminal = *(const bool *)context;
    if (kind == LATHE_LOG_WARNING)
        fprintf(stderr, "%swarning: %s\n", terminal ? "\r\033[K" : "", text);
    else if (kind == LATHE_LOG_PROGRESS && terminal)
        fprintf(stderr, "\r\033[K[%d/%d] %.60s", done, total, text);
}

/* Returns 0 to go on, else the exit status plus one. */
static int parse(int argc, char **argv, build_options *o) {
    int64_t jobs = 0;
    const lathe_option options[] = {
        {.name = "--cache", .text = &o->compiler.cache},
        {.name = "--jobs", .number = &jobs, .least = 1, .most = 1024},
        {.name = "--nvrtc", .text = &o->compiler.nvrtc},
        {.name = "--device", .text = &o->device, .allowed = "cuda, host"},
        {.name = "--allow-spills", .flag = &o->compiler.allow_spills},
        {.name = "--list", .flag = &o->list},
        {0}};
    const lathe_command_line line = {.command = "build",
                                     .help = usage,
                                     .options = options,
                                     .target = &o->directory,
                                     .target_is = "a generated directory"};
    const int status = lathe_command_line_parse(&line, argc, argv);
    o->compiler.jobs = (int)jobs;
    return status;
}

static void print_result(const build_options *o, const lathe_step_table *t,
                         const lathe_compiled *compiled, double seconds) {
    int made = 0;
    for (int k = 0; k < t->kernel_count; ++k) {
        made += compiled[k].made ? 1 : 0;
        if (o->list)
            printf("%s\t%s\t%s\n", t->kernels[k].name,
                   t->kernels[k].tactics[compiled[k].tactic].name, compiled[k].path);
    }
    printf("%d kernels of %s (%s): %d compiled, %d from the cache, %.2f s\n", t->kernel_count,
           t->layout, o->compiler.host ? "host" : t->arch, made, t->kernel_count - made, seconds);
}

/* Without it `lathe run` makes synthetic weights on the host. */
static void build_generator(const build_options *o, lathe_compiler *compiler) {
    char text[1024] = "";
    lathe_compiled compiled;
    if (o->compiler.host)
        return;
    const lathe_status status =
        lathe_generator_compile(compiler, &compiled, (lathe_message_buffer){text, sizeof text});
    if (status != LATHE_OK && status != LATHE_IO) /* an older directory has none */
        lathe_logger_write(o->compiler.log, LATHE_LOG_WARNING,
                           "synthetic weights will be made on the host, slowly: %s", text);
    else if (status == LATHE_OK && o->list)
        printf("%s\t%s\t%s\n", "synthetic weights", "256 threads", compiled.path);
}

static lathe_status build(build_options *o, const lathe_step_table *t,
                          lathe_message_buffer message) {
    const double start = lathe_seconds();
    lathe_compiler *compiler;
    lathe_compiled *compiled = calloc((size_t)t->kernel_count + 1, sizeof *compiled);
    if (!compiled)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    lathe_status status = lathe_compiler_create(&o->compiler, &compiler, message);
    if (status == LATHE_OK)
        status = lathe_compiler_run(compiler, t, compiled, message);
    if (status == LATHE_OK)
        build_generator(o, compiler);
    if (status == LATHE_OK)
        print_result(o, t, compiled, lathe_seconds() - start);
    lathe_compiler_destroy(compiler);
    free(compiled);
    return status;
}

int lathe_cmd_build(int argc, char **argv) {
    build_options o = {0};
    char text[4096] = "";
    const lathe_message_buffer message = {text, sizeof text};
    bool terminal = isatty(STDERR_FILENO) == 1;
    const int parsed = parse(argc, argv, &o);
    if (parsed != 0)
        return parsed - 1;
    lathe_step_table *table;
    lathe_logger log;
    lathe_logger_create(&log, log_line, &terminal);
    lathe_status status = lathe_step_table_read(o.directory, &table, text, sizeof text);
    if (status == LATHE_OK) {
        o.compiler.directory = o.directory;
        o.compiler.arch = table->arch;
        o.compiler.host =
            o.device ? strcmp(o.device, "host") == 0 : strcmp(table->arch, "host") == 0;
        o.compiler.log = &log;
        status = build(&o, table, message);
    }
    if (terminal)
        fputs("\r\033[K", stderr);
    if (status != LATHE_OK)
        fprintf(stderr, "lathe build: %s\n", text);
    lathe_step_table_destroy(table);
    lathe_logger_destroy(&log);
    return exit_status(status);
}
