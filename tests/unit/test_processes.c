/* SPDX-License-Identifier: Apache-2.0
 * Ranks as processes: the command that starts them, and an engine each whose mailboxes lie in the
 * other's memory. */
#include "fakes.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "generated.h"
#include "group.h"
#include "nccl.h"

#define BLOCK LATHE_SOURCE_DIR "/layouts/attention_block.lua"
#define SECOND 1000000000ull

TestSuite(processes, .timeout = 120);

/* Runs a shell command; its exit status, and what it printed. */
static int run(const char *command, char *text, size_t size) {
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    const size_t got = fread(text, 1, size - 1, f);
    text[got] = '\0';
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(processes, ranks_agree_on_their_outputs) {
    char text[8192];
    cr_assert_eq(
        run(LATHE_BINARY " run " BLOCK " --tp 2 --processes --steps 2 2>&1", text, sizeof text), 0,
        "%s", text);
    cr_assert(strstr(text, "2 steps") && strstr(text, "outputs identical, 3 of 3 alike"), "%s",
              text);
    cr_assert(strstr(text, "2 ranks as processes: all ended well"), "%s", text);
}

Test(processes, what_they_cannot_do_is_refused) {
    char text[8192];
    cr_assert_eq(
        run(LATHE_BINARY " run " BLOCK " --tp 2 --processes --check 2>&1", text, sizeof text), 2);
    cr_assert(strstr(text, "--processes with '--check'"), "%s", text);
    cr_assert_eq(run(LATHE_BINARY " run " BLOCK " --tp 2 --rank 0 2>&1", text, sizeof text), 2);
    cr_assert_eq(
        run(LATHE_BINARY " run " BLOCK " --tp 2 --processes --variant 9x9 2>&1", text, sizeof text),
        2);
    cr_assert(strstr(text, "rank 1: lathe run: no variant '9x9'"), "%s", text);
}

/* The process whose command line holds `what`; 0: none. */
static pid_t find_process(const char *what) {
    DIR *all = opendir("/proc");
    pid_t found = 0;
    for (const struct dirent *e; !found && (e = readdir(all));) {
        char name[300], line[4096] = "";
        snprintf(name, sizeof name, "/proc/%s/cmdline", e->d_name);
        FILE *f = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? fopen(name, "r") : NULL;
        const size_t got = f ? fread(line, 1, sizeof line - 1, f) : 0;
        if (f)
            fclose(f);
        for (size_t i = 0; i + 1 < got; ++i)
            if (line[i] == '\0')
                line[i] = ' ';
        if (got && strncmp(line, "lathe run", 9) == 0 && strstr(line, what))
            found = (pid_t)atoi(e->d_name);
    }
    closedir(all);
    return found;
}

static pid_t await_process(const char *what) {
    pid_t found = 0;
    for (int i = 0; i < 2000 && !(found = find_process(what)); ++i)
        usleep(10000);
    return found;
}

Test(processes, a_rank_that_is_killed_does_not_hang_the_others) {
    char command[512], mark[64], text[16384] = "";
    snprintf(mark, sizeof mark, "--seed %d", (int)getpid());
    snprintf(command, sizeof command,
             "exec timeout 100 %s run %s --tp 2 --processes --steps 100000 --timeout 100 %s "
             "--variant 1x1 2>&1",
             LATHE_BINARY, BLOCK, mark);
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    snprintf(command, sizeof command, "%s --variant 1x1 --rank 1", mark);
    const pid_t rank = await_process(command);
    cr_assert_gt(rank, 0);
    sleep(2);
    const time_t then = time(NULL);
    cr_assert_eq(kill(rank, SIGKILL), 0);
    const size_t got = fread(text, 1, sizeof text - 1, f);
    text[got] = '\0';
    const int status = pclose(f);
    cr_assert_leq(time(NULL) - then, 60);
    cr_assert_eq(WEXITSTATUS(status), 3, "%s", text);
    cr_assert(strstr(text, "rank 1 was ended by signal 9"), "%s", text);
    cr_assert(strstr(text, "rank 0: lathe run: "), "the other one says why it ended: %s", text);
    cr_assert(strstr(text, "NOT all ended well"), "%s", text);
}

static lathe_status fill_nothing(void *context, int weight, int layer, void *host, size_t bytes,
                                 char *text, size_t size) {
    (void)context, (void)weight, (void)layer, (void)host, (void)bytes;
    snprintf(text, size, "nothing to fill with");
    return LATHE_INVALID;
}

/* An engine of one rank on the fakes, in a process of its own. It asserts nothing: Criterion waits
 * for ever where a process that it did not start does. */
static int be_rank(fake_cuda *gpu, const char *directory, const char *meet, int rank,
                   const char *refusal) {
    char text[2048] = "", path[600];
    lathe_group *g;
    lathe_engine *e;
    gpu->no_sharing = refusal && strstr(refusal, "not shared");
    gpu->lose_writes = rank == 0 && refusal && strstr(refusal, "arrive"); /* one direction only */
    snprintf(path, sizeof path, "%s/group", meet);
    if (lathe_group_file_create(path, rank, 2, 20 * SECOND, &g, text, sizeof text) != LATHE_OK)
        return 1;
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = directory;
    o.device = LATHE_DEVICE_CUDA;
    o.cache = meet;
    o.nvrtc = FAKE_NVRTC;
    o.jobs = 1;
    o.rank = rank;
    o.group = g;
    if (lathe_create(&o, &e, text, sizeof text) != LATHE_OK)
        return 2;
    const lathe_weight_source none = {.size = sizeof none, .fill = fill_nothing};
    lathe_status status = lathe_build(e, &none);
    snprintf(text, sizeof text, "%s", lathe_message(e));
    lathe_destroy(e);
    lathe_group_destroy(g);
    if (gpu->live != 0)
        return 3;
    if (!refusal) /* mailboxes are open when weights are asked for */
        return status == LATHE_INVALID && strstr(text, "nothing to fill with") ? 0 : 4;
    return status == LATHE_UNSUPPORTED && strstr(text, refusal) && strstr(text, "the name is nccl")
               ? 0
               : 5;
}

static void run_pair(const char *refusal) {
    lathe_generated generated;
    char meet[] = "/tmp/lathe-meet-XXXXXX", command[128];
    pid_t ranks[2];
    cr_assert_not_null(mkdtemp(meet));
    cr_assert_eq(lathe_generated_open("gen", BLOCK, "2", "sm_90a", NULL, &generated), 0);
    fake_cuda *gpu = fake_cuda_open();
    for (int r = 0; r < 2; ++r) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            _exit(be_rank(gpu, generated.directory, meet, r, refusal));
    }
    for (int r = 0; r < 2; ++r) {
        int status = 0;
        waitpid(ranks[r], &status, 0);
        cr_assert(WIFEXITED(status));
        cr_assert_eq(WEXITSTATUS(status), 0, "rank %d: %d", r, WEXITSTATUS(status));
    }
    lathe_generated_close(&generated);
    snprintf(command, sizeof command, "rm -r %s", meet);
    cr_assert_eq(system(command), 0);
}

Test(processes, mailboxes_are_mapped_and_proved) {
    run_pair(NULL);
}

Test(processes, memory_that_cannot_be_shared_refuses_every_rank) {
    run_pair("is not shared: cuIpcGetMemHandle");
}

/* Rank 1 sees it, both say it. */
Test(processes, memory_that_does_not_take_writes_refuses_every_rank) {
    run_pair("rank 1: peer access is claimed, but what rank 0 wrote did not arrive");
}
