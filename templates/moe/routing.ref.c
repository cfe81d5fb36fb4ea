/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/routing. Scores and keys are formed in fp32, because a selection made in double
 * would differ from any fp32 kernel wherever two keys are close; everything after the selection is
 * integers. */
#include <math.h>

#include "moe/routing.ref.h"

typedef struct {
    lathe_ref *r;
    int rank;
    int64_t rows, experts, splits, top_k, tile, local, offset, max_ctas;
    const double *ids;
} routing_job;

/* One token: its inputs and what the selection goes by. */
typedef struct {
    const float *bias;
    float logits[1024], score[1024], key[1024];
} routing_token;

static routing_job read_job(lathe_ref *r, int rank) {
    routing_job job = {.r = r,
                       .rank = rank,
                       .rows = lathe_ref_int(r, "kRows"),
                       .experts = lathe_ref_int(r, "kExperts"),
                       .splits = lathe_ref_int(r, "kLogitSplits"),
                       .top_k = lathe_ref_int(r, "kTopK"),
                       .tile = lathe_ref_int(r, "kTile"),
                       .local = lathe_ref_int(r, "kLocal"),
                       .max_ctas = lathe_ref_int(r, "kMaxCtas")};
    const int32_t *place = lathe_ref_data(r, rank, "rank");
    job.offset = job.local == job.experts || place == NULL ? 0 : place[0] * job.local;
    return job;
}

static float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* Expert of the largest key that is not yet taken; the lowest id among equals, a NaN counting as
 * minus infinity. */
static int64_t best_expert(const float *key, const bool *taken, int64_t experts) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
        if (taken[e])
            continue;
        const float k = isnan(key[e]) ? -INFINITY : key[e];
        const float b = best < 0 || isnan(key[best]) ? -INFINITY : key[best];
        if (best < 0 || k > b)
            best = e;
    }
    return best;
}

/* Distance of two experts' keys in ulp of the score; endless where a rule decides and not rounding:
 * equal inputs, NaN. */
static double key_distance(const routing_token *token, int64_t a, int64_t b) {
    const bool alike = token->logits[a] == token->logits[b] && token->bias[a] == token->bias[b];
    if (a == b)
        return 0;
    if (alike || isnan(token->key[a]) || isnan(token->key[b]))
        return (double)INFINITY;
    const float size = fmaxf(fmaxf(token->score[a], token->score[b]), fabsf(token->key[a]));
    const double ulp = (double)(nextafterf(size, INFINITY) - size);
    return fabs((double)token->key[a] - (double)token->key[b]) / ulp;
}

/* Follows what the launch chose where it differs by no more than rounding. */
static void follow_observed(const routing_job *job, const routing_token *token, int64_t t,
                            double *ids) {
    const int32_t *seen = lathe_ref_observed(job->r, job->rank, "ids");
    bool taken[1024] = {false};
    double distance = 0;
    bool differs = false;
    if (seen == NULL)
        return;
    seen += t * job->top_k;
    for (int64_t k = 0; k < job->top_k; ++k) {
        if (seen[k] < 0 || seen[k] >= job->experts || taken[seen[k]])
            return; /* no selection at all */
        taken[seen[k]] = true;
        differs = differs || seen[k] != (int64_t)ids[k];
        distance = fmax(distance, key_distance(token, seen[k], (int64_t)ids[k]));
    }
    if (differs && lathe_ref_flip(job->r, job->rank, t, distance))
        for (int64_t k = 0; k < job->top_k; ++k)
            ids[k] = seen[k];
}

static void select_experts(const routing_job *job, routing_token *token, int64_t t, double *ids,
                           double *weights) {
    const float scale = (float)lathe_ref_real(job->r, "kScale");
    const double epsilon = lathe_ref_real(job->r, "kEpsilon");
    bool taken[1024] = {false};
    double sum = 0;
    for (int64_t e = 0; e < job->experts; ++e) {
        token->score[e] = sigmoid(scale * token->logits[e]);
        token->key[e] = token->score[e] + token->bias[e];
    }
    for (int64_t k = 0; k < job->top_k; ++k) {
        const int64_t e = best_expert(token->key, taken, job->experts);
        taken[e] = true;
        ids[k] = (double)e;
    }
    follow_observed(job, token, t, ids);
    for (int64_t k = 0; k < job->top_k; ++k)
        sum += (double)token->score[(int64_t)ids[k]];
    for (int64_t k = 0; k < job->top_k; ++k) {
        const double weight = (double)token->score[(int64_t)ids[k]] / (sum + epsilon);
        weights[k] = lathe_ref_int(job->r, "kBf16Weights")
                         ? lathe_ref_round(job->r, (double)(float)weight)
                         : (double)(float)weight;
    }
}

/* The logits of token `t`: as they are, or partial sums added in fp32 in their order. */
static void read_logits(const routing_job *job, int64_t t, float *logits) {
    const float *given = lathe_ref_data(job->r, job->rank, "logits");
    for (int64_t e = 0; e < job->experts; ++e) {
        logits[e] = given[t * job->experts + e];
        for (int64_t s = 1; s < job->splits; ++s)
            logits[e] += given[(s * job->rows + t) * job->experts + e];
    }
}

static void select_all(const routing_job *job, double *ids, double *weights) {
    const float *bias = lathe_ref_data(job->r, job->rank, "bias");
    const int64_t *slots = lathe_ref_data(job->r, job->rank, "slots");
    for (int64_t t = 0; t < job->rows; ++t) {
        double *id = ids + t * job->top_k, *weight = weights + t * job->top_k;
        if (slots[t] < 0) {
            for (int64_t k = 0; k < job->top_k; ++k) {
                id[k] = -1;
                weight[k] = 0;
            }
        } else {
            routing_token token = {.bias = bias};
            read_logits(job, t, token.logits);
            select_experts(job, &token, t, id, weight);
        }
    }
}

/* Fills what the metadata hold before any route is entered. */
static void fill(lathe_ref *r, int rank, const char *name, int64_t count, double value) {
    double *out = lathe_ref_out(r, rank, name);
    for (int64_t i = 0; out != NULL && i < count; ++i)
        out[i] = value;
}

static void prepare_metadata(const routing_job *job) {
    fill(job->r, job->rank, "expanded_to_permuted", job->rows * job->top_k, -1);
    fill(job->r, job->rank, "permuted_to_token", job->max_ctas * job->tile + 1, -1);
    fill(job->r, job->rank, "histogram", lathe_ref_int(job->r, "kHistogram"), 0);
    fill(job->r, job->rank, "counts", job->experts, 0);
    fill(job->r, job->rank, "cta_expert", job->max_ctas, -1);
    fill(job->r, job->rank, "cta_limit", job->max_ctas, -1);
}

/* Enters the routes of local expert `e`, whose first tile is `tile`; returns the number of routes.
 */
static int64_t enter_expert(const routing_job *job, int64_t e, int64_t tile) {
    double *to_row = lathe_ref_out(job->r, job->rank, "expanded_to_permuted");
    double *to_token = lathe_ref_out(job->r, job->rank, "permuted_to_token");
    int64_t count = 0;
    for (int64_t x = 0; x < job->rows * job->top_k; ++x) {
        if ((int64_t)job->ids[x] != job->offset + e)
            continue;
        const int64_t row = tile * job->tile + count++;
        to_row[x] = (double)row;
        to_token[row] = (double)(x / job->top_k);
    }
    return count;
}

static void write_metadata(const routing_job *job) {
    double *counts = lathe_ref_out(job->r, job->rank, "counts");
    double *expert = lathe_ref_out(job->r, job->rank, "cta_expert");
    double *limit = lathe_ref_out(job->r, job->rank, "cta_limit");
    int64_t tile = 0;
    prepare_metadata(job);
    for (int64_t e = 0; e < job->local; ++e) {
        const int64_t first = tile, count = enter_expert(job, e, first);
        counts[job->offset + e] = (double)count;
        for (; (tile - first) * job->tile < count; ++tile) {
            const int64_t end = (tile + 1) * job->tile, last = first * job->tile + count;
            expert[tile] = (double)e;
            limit[tile] = (double)(end < last ? end : last);
        }
    }
    lathe_ref_out(job->r, job->rank, "ctas")[0] = (double)tile;
    lathe_ref_out(job->r, job->rank, "total_padded")[0] = (double)(tile * job->tile);
}

void lathe_ref_moe_routing(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        routing_job job = read_job(r, rank);
        if (job.experts < 1 || job.experts > 1024 || job.top_k > job.experts || job.local < 1) {
            lathe_ref_fail(r, "routing: 1 to 1024 experts, no more taken than there are");
            return;
        }
        double *ids = lathe_ref_out(r, rank, "ids");
        select_all(&job, ids, lathe_ref_out(r, rank, "weights"));
        job.ids = ids;
        write_metadata(&job);
    }
}
