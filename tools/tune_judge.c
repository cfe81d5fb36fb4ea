/* SPDX-License-Identifier: Apache-2.0
 * Differences in pairs, round by round. Their median's standard error is 1.2533 sigma / sqrt(n),
 * sigma being the interquartile range / 1.349 (both of the normal distribution). */
#include "tune_judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_stats.h"

static lathe_bench_stats stats_of(const lathe_tune_race *r, int c, int other) {
    double *d = calloc((size_t)r->rounds + 1, sizeof *d);
    for (int i = 0; d && i < r->rounds; ++i)
        d[i] = r->times[c * r->room + i] - (other < 0 ? 0 : r->times[other * r->room + i]);
    const lathe_bench_stats s = lathe_bench_stats_of(d, d ? r->rounds : 0);
    free(d);
    return s;
}

double lathe_tune_median(const lathe_tune_race *r, int c, double *spread) {
    const lathe_bench_stats s = stats_of(r, c, -1);
    if (spread)
        *spread = s.p75 - s.p25;
    return s.median;
}

static int find_best(const lathe_tune_race *r) {
    int best = -1;
    double least = 0;
    for (int c = 0; c < r->count; ++c) {
        const double median = r->racing[c] ? lathe_tune_median(r, c, NULL) : 0;
        if (r->racing[c] &&
            (best < 0 || median < least || (median == least && r->simple[c] < r->simple[best]))) {
            best = c;
            least = median;
        }
    }
    return best;
}

lathe_tune_verdict lathe_tune_judge(const lathe_tune_race *r) {
    lathe_tune_verdict v = {.best = find_best(r)};
    v.taken = v.best;
    bool near = true;
    for (int c = 0; c < r->count; ++c) {
        if (!r->racing[c])
            continue;
        const lathe_bench_stats s = stats_of(r, c, v.best);
        const double noise = 3 * 1.2533 * (s.p75 - s.p25) / 1.349 / sqrt((double)r->rounds);
        if (c != v.best && r->rounds >= LATHE_TUNE_LEAST && s.median > noise &&
            s.median > r->enough) {
            r->racing[c] = false;
            continue;
        }
        ++v.racing;
        near = near && s.median + noise <= r->enough;
        v.noise = noise > v.noise ? noise : v.noise;
        if (s.median <= LATHE_TUNE_NEAR * r->enough && r->simple[c] < r->simple[v.taken])
            v.taken = c;
    }
    v.settled = r->rounds >= LATHE_TUNE_LEAST && (v.racing == 1 || near);
    return v;
}

void lathe_tune_progress(char *line, size_t size, const char *what, double done, double total,
                         double seconds) {
    enum { BAR = 24 };
    const double share = total > 0 && done < total ? done / total : 1;
    const int full = (int)(share * BAR);
    char bar[BAR + 1];
    for (int i = 0; i < BAR; ++i)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    const int left = share > 0 ? (int)ceil(seconds / share - seconds) : 0;
    if (share > 0)
        snprintf(line, size, "[%s] %s, %d:%02d to go", bar, what, left / 60, left % 60);
    else
        snprintf(line, size, "[%s] %s", bar, what);
}
