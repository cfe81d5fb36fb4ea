/* SPDX-License-Identifier: Apache-2.0
 * Starting ranks, waiting for them, and what they said. Each writes to files of its own in a
 * private folder, in which they also meet. */
#include "processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "files.h"
#include "group.h"
#include "seconds.h"

#define GRACE_S 30 /* bounded waits in the others end well before */
#define POLL_NS 10000000
#define MOST_OPTIONS 64

extern char **environ;

typedef struct {
    pid_t process; /* 0: ended, or never started */
    int status;    /* of exit; 128 + n where signal n ended it */
    bool forced;   /* by us */
} child;

typedef struct {
    const lathe_processes *what;
    char folder[4096];
    child ranks[LATHE_GROUP_MAX];
} launcher;

static int fail(const char *what, int error) {
    fprintf(stderr, "lathe run: %s: %s\n", what, strerror(error));
    return LATHE_EXIT_USAGE;
}

static void name_file(const launcher *l, int rank, const char *what, char *path, size_t size) {
    snprintf(path, size, "%s/rank-%d.%s", l->folder, rank, what);
}

static int spawn(const launcher *l, char *const *argv, int rank, pid_t *process) {
    char out[4200], err[4200];
    posix_spawn_file_actions_t actions;
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    name_file(l, rank, "out", out, sizeof out);
    name_file(l, rank, "err", err, sizeof err);
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out, flags, 0600);
    if (!error)
        error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err, flags, 0600);
    if (!error)
        error = posix_spawn(process, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static int start(launcher *l, int rank) {
    char number[16];
    const char *argv[MOST_OPTIONS + 8] = {"lathe", "run", l->what->target};
    int n = 3;
    for (int i = 0; l->what->options[i]; ++i) {
        if (i == MOST_OPTIONS)
            return E2BIG;
        argv[n++] = l->what->options[i];
    }
    snprintf(number, sizeof number, "%d", rank);
    argv[n++] = "--rank";
    argv[n++] = number;
    argv[n++] = "--meet";
    argv[n++] = l->folder;
    argv[n] = NULL;
    return spawn(l, (char *const *)(uintptr_t)argv, rank, &l->ranks[rank].process);
}

static int exit_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Collects whoever has ended. How many run on. */
static int collect(launcher *l, bool *failed) {
    int running = 0;
    for (int r = 0; r < l->what->count; ++r) {
        child *c = &l->ranks[r];
        int status = 0;
        if (c->process == 0)
            continue;
        if (waitpid(c->process, &status, WNOHANG) != c->process) {
            ++running;
            continue;
        }
        c->process = 0;
        c->status = exit_of(status);
        *failed = *failed || c->status != LATHE_EXIT_OK;
    }
    return running;
}

static void end_all(launcher *l) {
    for (int r = 0; r < l->what->count; ++r)
        if (l->ranks[r].process) {
            l->ranks[r].forced = true;
            kill(l->ranks[r].process, SIGKILL);
        }
}

static void wait_all(launcher *l, bool failed) {
    double since = failed ? lathe_seconds() : 0;
    bool ended = false;
    while (collect(l, &failed) > 0) {
        if (failed && since <= 0)
            since = lathe_seconds();
        if (failed && !ended && lathe_seconds() - since >= GRACE_S) {
            end_all(l);
            ended = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

/* Copies what a rank said, with its number before each line where that is asked for. */
static void show(const launcher *l, int rank, const char *what, FILE *out, bool numbered) {
    char path[4200];
    char *text = NULL, *save = NULL;
    size_t bytes = 0;
    name_file(l, rank, what, path, sizeof path);
    if (lathe_file_read(path, (size_t)64 << 20, &text, &bytes) != 0)
        return;
    if (!numbered)
        fwrite(text, 1, bytes, out);
    else
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            fprintf(out, "rank %d: %s\n", rank, line);
    free(text);
}

static int report(const launcher *l) {
    int worst = LATHE_EXIT_OK;
    show(l, 0, "out", stdout, false);
    for (int r = 0; r < l->what->count; ++r) {
        const int status = l->ranks[r].status;
        if (r > 0 && status != LATHE_EXIT_OK)
            show(l, r, "out", stdout, true);
        show(l, r, "err", stderr, true);
        if (l->ranks[r].forced && status > 128)
            fprintf(stderr,
                    "lathe run: rank %d had not ended %d s after another one failed, and was "
                    "killed\n",
                    r, GRACE_S);
        else if (status > 128)
            fprintf(stderr, "lathe run: rank %d was ended by signal %d\n", r, status - 128);
        const int own = status > 128 ? LATHE_EXIT_DEVICE : status;
        worst = own > worst ? own : worst;
    }
    printf("%d ranks as processes: %s\n", l->what->count,
           worst == LATHE_EXIT_OK ? "all ended well" : "NOT all ended well");
    fflush(stdout);
    return worst;
}

static const char *temporary(void) {
    const char *env = getenv("TMPDIR");
    return env && env[0] ? env : "/tmp";
}

int lathe_processes_run(const lathe_processes *p) {
    launcher *l = calloc(1, sizeof *l);
    if (!l)
        return fail("no memory", ENOMEM);
    l->what = p;
    int error = lathe_folder_make_private(temporary(), l->folder, sizeof l->folder);
    if (error) {
        free(l);
        return fail("a folder for the ranks to meet in", error);
    }
    for (int r = 0; r < p->count && !error; ++r)
        error = start(l, r);
    if (error)
        end_all(l);
    wait_all(l, error != 0);
    const int status = error ? fail("a rank cannot be started", error) : report(l);
    (void)lathe_folder_remove(l->folder);
    free(l);
    return status;
}
