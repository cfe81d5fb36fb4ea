// SPDX-License-Identifier: Apache-2.0
// That ThreadSanitizer sees what a kernel forgets when CUDA threads are threads, and nothing else.
#include "harness.h"

#include <string>
#include <sys/wait.h>
#include <unistd.h>

enum { RIGHT, NO_BARRIER, SHUFFLE_FOR_SYNC, NO_BULK_WAIT, PLAIN_COUNTER, KINDS };

// Words go through shared memory to the neighbour; a bulk copy brings others; a counter is global.
template <int WHAT>
__device__ void kernel(const u32 *x, u32 *counter, u32 *y) {
    u64 *mbar = reinterpret_cast<u64 *>(dynamic_shared());
    u32 *words = reinterpret_cast<u32 *>(dynamic_shared() + 16), *copied = words + 64;
    const u32 me = thread_id();
    if (me == 0) {
        mbar_init(mbar, 1);
        mbar_init_fence();
    }
    shared_store(words + me, x[me]);
    if (WHAT != NO_BARRIER)
        block_sync();
    u32 sum = shared_load(words + (me + 33) % 64);
    block_sync();
    if (me == 0) {
        mbar_expect(mbar, 256);
        bulk_load(copied, x, 256, mbar);
    }
    if (WHAT != NO_BULK_WAIT)
        mbar_wait(mbar, 0);
    sum += shared_load(copied + me);
    shared_store(words + me, sum);
    if (WHAT == SHUFFLE_FOR_SYNC)
        (void)warp_shuffle(sum, 0);
    else
        warp_sync();
    sum += shared_load(words + (me ^ 1u));
    if (WHAT == PLAIN_COUNTER)
        *counter += 1;
    else
        gpu_atomic_add(counter, 1);
    y[block_id() * 64 + me] = sum + warp_ballot(true);
}

template <int WHAT>
static void run() {
    Kernel k("kernel", kernel<WHAT>, nullptr);
    k.in("x", {64}).integers(0, 100);
    k.workspace("counter", {1}).fill(0);
    k.out("y", {4, 64});
    k.launch({4}, 64, 16 + 512);
    k.run();
}

// In a process of its own: whether the sanitizer spoke.
static bool races(void (*body)()) {
    int ends[2];
    require(pipe(ends) == 0, "no pipe");
    const pid_t child = fork();
    require(child >= 0, "no process");
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        body();
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
        text.append(part, static_cast<size_t>(n));
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return text.find("data race") != std::string::npos;
}

int main() {
    void (*const kinds[KINDS])() = {run<RIGHT>, run<NO_BARRIER>, run<SHUFFLE_FOR_SYNC>,
                                    run<NO_BULK_WAIT>, run<PLAIN_COUNTER>};
    for (int what = 0; what < KINDS; what++)
        require(races(kinds[what]) == (what != RIGHT), "kind %d of kernel: %s", what,
                what == RIGHT ? "a false report" : "no report");
    run<RIGHT>();
    return finish("threads");
}
