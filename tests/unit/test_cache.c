/* SPDX-License-Identifier: Apache-2.0
 * The cache: one compile per key, whatever dies, fills up or is damaged; never a wrong artefact. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache.h"
#include "files.h"

static char root[256], cache_folder[300], counter[300];
static char log_text[4096];
static lathe_logger logger;

static void note(void *context, lathe_log_kind kind, const char *text, int done, int total) {
    (void)context, (void)done, (void)total;
    const size_t used = strlen(log_text);
    if (kind == LATHE_LOG_WARNING)
        snprintf(log_text + used, sizeof log_text - used, "%s\n", text);
}

static void set_up(void) {
    strcpy(root, "/tmp/lathe-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    snprintf(cache_folder, sizeof cache_folder, "%s/a/cache", root);
    snprintf(counter, sizeof counter, "%s/counter", root);
    lathe_logger_create(&logger, note, NULL);
}

static void tear_down(void) {
    cr_assert_eq(lathe_folder_remove(root), 0);
}

TestSuite(cache, .init = set_up, .fini = tear_down, .timeout = 60);

/* What a compiler would do: the artefact follows from the key alone. Each call leaves a mark. */
typedef struct {
    const char *artefact;
    int wait_ms;
    lathe_status status;
} maker;

static lathe_status make(void *context, const char *path, char **log,
                         lathe_message_buffer message) {
    const maker *m = context;
    const int fd = open(counter, O_WRONLY | O_CREAT | O_APPEND, 0600);
    const bool counted = fd >= 0 && write(fd, "x", 1) == 1;
    close(fd);
    if (!counted)
        return lathe_fail(message, LATHE_IO, "%s cannot be written", counter);
    if (m->status != LATHE_OK)
        return lathe_fail(message, m->status, "the compiler says no");
    const int error = lathe_file_write(path, m->artefact, strlen(m->artefact) / 2);
    usleep((useconds_t)m->wait_ms * 1000);
    *log = strdup("all is well");
    return error || lathe_file_write(path, m->artefact, strlen(m->artefact))
               ? lathe_fail(message, LATHE_IO, "%s: cannot be written", path)
               : LATHE_OK;
}

static long made(void) {
    struct stat info;
    return stat(counter, &info) == 0 ? (long)info.st_size : 0;
}

static lathe_cache_request request_for(const char *key) {
    return (lathe_cache_request){"toy_kernel", "kernel.cubin", "source", 6, key, strlen(key)};
}

/* Also in processes of its own, so it asserts nothing: Criterion waits for ever where one that it
 * did not start does. LATHE_INVALID where the entry is not what the maker made. */
static lathe_status get(const char *folder, const char *key, maker *m, lathe_cache_entry *entry,
                        char *message) {
    lathe_cache *c;
    const lathe_message_buffer out = {message, 1024};
    message[0] = '\0';
    lathe_status status = lathe_cache_create(folder, &logger, &c, out);
    if (status != LATHE_OK)
        return status;
    const lathe_cache_request request = request_for(key);
    status = lathe_cache_get(c, &request, make, m, entry, out);
    if (status == LATHE_OK) {
        char *data = NULL;
        size_t bytes;
        if (lathe_file_read(entry->path, 1 << 20, &data, &bytes) != 0 ||
            strcmp(data, m->artefact) != 0)
            status = lathe_fail(out, LATHE_INVALID, "%s holds '%s'", entry->path, data ? data : "");
        free(data);
    }
    lathe_cache_destroy(c);
    return status;
}

static void expect_made(const char *folder, const char *key, maker *m, bool wanted) {
    lathe_cache_entry entry;
    char message[1024];
    cr_assert_eq(get(folder, key, m, &entry, message), LATHE_OK, "%s", message);
    cr_assert_eq(entry.made, wanted);
}

/* The only folder of the cache whose name ends in `end`. */
static void find_entry(char path[512], const char *end) {
    char command[600];
    snprintf(command, sizeof command, "ls -d %s/*%s", cache_folder, end);
    FILE *out = popen(command, "r");
    cr_assert_not_null(fgets(path, 512, out), "%s", command);
    path[strcspn(path, "\n")] = '\0';
    pclose(out);
}

static int entries(void) {
    char command[600], text[32] = "";
    snprintf(command, sizeof command, "ls -A %s | wc -l", cache_folder);
    FILE *out = popen(command, "r");
    cr_assert_not_null(fgets(text, sizeof text, out));
    pclose(out);
    return atoi(text);
}

Test(cache, makes_once_and_finds_again) {
    maker m = {.artefact = "cubin of one"}, other = {.artefact = "cubin of two"};
    expect_made(cache_folder, "key one", &m, true);
    expect_made(cache_folder, "key one", &m, false);
    expect_made(cache_folder, "key two", &other, true);
    expect_made(cache_folder, "key one", &m, false);
    cr_assert_eq(made(), 2);
    cr_assert_eq(entries(), 2, "locks and parts are gone");
}

Test(cache, keeps_source_log_and_key_for_a_reader) {
    static const char *const wanted[][2] = {
        {"kernel.cu", "source"}, {"build.log", "all is well"}, {"key.txt", "key one"}};
    maker m = {.artefact = "cubin"};
    char folder[512], path[600], *data;
    size_t bytes;
    expect_made(cache_folder, "key one", &m, true);
    find_entry(folder, "");
    for (int i = 0; i < 3; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, wanted[i][0]);
        cr_assert_eq(lathe_file_read(path, 4096, &data, &bytes), 0);
        cr_assert_str_eq(data, wanted[i][1]);
        free(data);
    }
}

Test(cache, a_failed_compile_leaves_nothing) {
    maker bad = {.artefact = "", .status = LATHE_COMPILE}, good = {.artefact = "cubin"};
    lathe_cache_entry entry;
    char message[1024];
    cr_assert_eq(get(cache_folder, "key", &bad, &entry, message), LATHE_COMPILE);
    cr_assert_str_eq(message, "the compiler says no");
    cr_assert_eq(entries(), 0);
    expect_made(cache_folder, "key", &good, true);
}

Test(cache, sixteen_cold_processes_compile_once) {
    maker m = {.artefact = "cubin of many", .wait_ms = 50};
    pid_t children[16];
    for (int i = 0; i < 16; ++i) {
        children[i] = fork();
        if (children[i] == 0) {
            lathe_cache_entry entry;
            char message[1024];
            _exit(get(cache_folder, "key", &m, &entry, message) == LATHE_OK ? 0 : 1);
        }
    }
    for (int i = 0; i < 16; ++i) {
        int status;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    cr_assert_eq(made(), 1);
    cr_assert_eq(entries(), 1);
}

/* A process killed at some moment of its build, again and again; then one that is left alone. */
Test(cache, a_killed_build_leaves_nothing_that_counts) {
    maker m = {.artefact = "cubin after a kill", .wait_ms = 4};
    for (int i = 0; i < 12; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            lathe_cache_entry entry;
            char message[1024], key[16];
            snprintf(key, sizeof key, "key %d", i % 3);
            get(cache_folder, key, &m, &entry, message);
            _exit(0);
        }
        usleep((useconds_t)(300 * i));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    for (int i = 0; i < 3; ++i) {
        char key[16];
        lathe_cache_entry entry;
        char message[1024];
        snprintf(key, sizeof key, "key %d", i);
        cr_assert_eq(get(cache_folder, key, &m, &entry, message), LATHE_OK, "%s", message);
        expect_made(cache_folder, key, &m, false);
    }
    cr_assert_str_eq(log_text, "", "nothing was ever damaged");
}

Test(cache, a_killed_build_is_cleaned_up_by_the_next) {
    maker slow = {.artefact = "cubin", .wait_ms = 10000}, m = {.artefact = "cubin"};
    char part[512];
    const pid_t child = fork();
    if (child == 0) {
        lathe_cache_entry entry;
        char message[1024];
        get(cache_folder, "key", &slow, &entry, message);
        _exit(0);
    }
    while (made() == 0)
        usleep(1000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    find_entry(part, ".part");
    expect_made(cache_folder, "key", &m, true);
    cr_assert_eq(entries(), 1);
}

/* Truncates (or, where `text`, overwrites) one file of the entry. */
static void damage(const char *name, const char *text) {
    char folder[512], path[600];
    find_entry(folder, "");
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (text)
        cr_assert_eq(lathe_file_write(path, text, strlen(text)), 0);
    else
        cr_assert_eq(truncate(path, 3), 0);
}

Test(cache, damaged_entries_are_rebuilt_and_said_so) {
    static const char *const files[] = {"kernel.cubin", "kernel.cu", "key.txt", "digests.txt"};
    maker m = {.artefact = "cubin that must be whole"};
    expect_made(cache_folder, "the key", &m, true);
    for (int i = 0; i < 8; ++i) {
        const char *file = files[i / 2];
        log_text[0] = '\0';
        damage(file, i % 2 ? "Cubin that must be whole" : NULL);
        expect_made(cache_folder, "the key", &m, true);
        cr_assert(strstr(log_text, "damaged") && strstr(log_text, file), "%s", log_text);
        expect_made(cache_folder, "the key", &m, false);
    }
    cr_assert_eq(entries(), 1);
}

/* Whatever of a file is lost, the entry is made anew and never taken. */
Test(cache, an_entry_cut_at_any_byte_is_rebuilt) {
    static const char *const files[] = {"kernel.cubin", "kernel.cu", "key.txt", "digests.txt"};
    maker m = {.artefact = "cubin"};
    char folder[512], path[600];
    struct stat info;
    expect_made(cache_folder, "the key", &m, true);
    find_entry(folder, "");
    for (int i = 0; i < 4; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        cr_assert_eq(stat(path, &info), 0);
        cr_assert_gt(info.st_size, 4);
        for (off_t n = 0; n < info.st_size; ++n) {
            cr_assert_eq(truncate(path, n), 0);
            expect_made(cache_folder, "the key", &m, true);
        }
    }
    cr_assert_eq(entries(), 1);
}

Test(cache, a_missing_artefact_is_damage) {
    maker m = {.artefact = "cubin"};
    char folder[512], path[600];
    expect_made(cache_folder, "key", &m, true);
    find_entry(folder, "");
    snprintf(path, sizeof path, "%s/kernel.cubin", folder);
    cr_assert_eq(unlink(path), 0);
    expect_made(cache_folder, "key", &m, true);
}

/* The key is compared whole: an entry that stands at the right name for another key does not count.
 */
Test(cache, an_entry_of_another_key_is_not_taken) {
    maker one = {.artefact = "cubin of one"}, two = {.artefact = "cubin of two"};
    char first[512], command[2000];
    expect_made(cache_folder, "key one", &one, true);
    find_entry(first, "");
    expect_made(cache_folder, "key two", &two, true);
    snprintf(command, sizeof command,
             "for d in %s/*; do [ $d = %s ] || { rm -r $d; mv %s $d; }; done", cache_folder, first,
             first);
    cr_assert_eq(system(command), 0);
    expect_made(cache_folder, "key two", &two, true);
    cr_assert(strstr(log_text, "key.txt"), "%s", log_text);
}

Test(cache, environment_names_the_folder) {
    maker m = {.artefact = "cubin"};
    char path[512];
    setenv("LATHE_CACHE", cache_folder, 1);
    expect_made(NULL, "key", &m, true);
    find_entry(path, "");
    unsetenv("LATHE_CACHE");
    setenv("XDG_CACHE_HOME", root, 1);
    expect_made(NULL, "key", &m, true);
    snprintf(path, sizeof path, "%s/lathe", root);
    cr_assert_eq(access(path, F_OK), 0);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", root, 1);
    expect_made(NULL, "key", &m, true);
    snprintf(path, sizeof path, "%s/.cache/lathe", root);
    cr_assert_eq(access(path, F_OK), 0);
}

static void expect_fallback(const char *folder) {
    maker m = {.artefact = "cubin in a private folder"};
    lathe_cache_entry entry;
    char message[1024];
    log_text[0] = '\0';
    setenv("TMPDIR", root, 1);
    cr_assert_eq(get(folder, "key", &m, &entry, message), LATHE_OK, "%s", message);
    cr_assert(entry.made);
    cr_assert_eq(strncmp(entry.path, root, strlen(root)), 0, "%s", entry.path);
    cr_assert_neq(access(entry.path, F_OK), 0, "the private folder goes with the cache");
}

Test(cache, no_home_is_no_failure) {
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("LATHE_CACHE");
    expect_fallback(NULL);
    cr_assert(strstr(log_text, "LATHE_CACHE, XDG_CACHE_HOME and HOME are unset"), "%s", log_text);
    setenv("HOME", "/proc/nowhere", 1);
    expect_fallback(NULL);
    cr_assert(strstr(log_text, "cannot be written"), "%s", log_text);
    char file[400];
    snprintf(file, sizeof file, "%s/file", root);
    cr_assert_eq(lathe_file_write(file, "", 0), 0);
    expect_fallback(file);
}

/* A mount of one's own, where that is allowed. */
static bool mount_small(const char *options, unsigned long flags) {
    cr_assert_eq(lathe_folder_make(cache_folder), 0);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", cache_folder, "tmpfs", flags, options) != 0) {
        cr_log_warn("mounts are not allowed here: skipped");
        return false;
    }
    return true;
}

Test(cache, a_read_only_folder_is_read_and_not_written) {
    maker m = {.artefact = "cubin"};
    if (!mount_small("size=1m", 0))
        cr_skip_test();
    expect_made(cache_folder, "known", &m, true);
    cr_assert_eq(mount(NULL, cache_folder, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    expect_made(cache_folder, "known", &m, false);
    cr_assert_eq(mount(NULL, cache_folder, NULL, MS_REMOUNT, NULL), 0);
    damage("kernel.cubin", NULL);
    cr_assert_eq(mount(NULL, cache_folder, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    log_text[0] = '\0';
    lathe_cache_entry entry;
    char message[1024];
    setenv("TMPDIR", root, 1);
    cr_assert_eq(get(cache_folder, "known", &m, &entry, message), LATHE_OK, "%s", message);
    cr_assert(strstr(log_text, "is damaged (kernel.cubin) and cannot be replaced"), "%s", log_text);
    expect_fallback(cache_folder);
    cr_assert(strstr(log_text, strerror(EROFS)), "%s", log_text);
    umount(cache_folder);
}

/* Fills it up to some page: each file of an entry in turn is the first that does not fit. */
Test(cache, a_full_disk_is_no_failure) {
    maker m = {.artefact = "cubin"};
    if (!mount_small("size=64k,nr_inodes=64", 0))
        cr_skip_test();
    char filler[400];
    static const char zeros[65536];
    snprintf(filler, sizeof filler, "%s/filler", cache_folder);
    int fallbacks = 0;
    for (size_t pages = 16; pages > 8; --pages) {
        lathe_file_write(filler, zeros, pages * 4096);
        lathe_cache_entry entry;
        char message[1024], key[32];
        snprintf(key, sizeof key, "key %zu", pages);
        setenv("TMPDIR", root, 1);
        cr_assert_eq(get(cache_folder, key, &m, &entry, message), LATHE_OK, "%s", message);
        fallbacks += strncmp(entry.path, cache_folder, strlen(cache_folder)) != 0;
    }
    cr_assert_gt(fallbacks, 2);
    cr_assert_lt(fallbacks, 8);
    cr_assert(strstr(log_text, strerror(ENOSPC)), "%s", log_text);
    umount(cache_folder);
}
