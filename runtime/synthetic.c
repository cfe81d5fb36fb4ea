/* SPDX-License-Identifier: Apache-2.0
 * Generates synthetic weights by kind. The kinds' names stand in layouts/README.md; where step.json
 * names none, dtype and shape decide. Every value uses additions, multiplications, a square root
 * and powers of two only. */
#include "synthetic.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN 0x9e3779b97f4a7c15ull
#define THREADS_MAX 32
#define ELEMENTS_PER_THREAD (1 << 20)

/* What the hash of a row, an outlier or a pair of experts is made different by. */
enum { SALT_ROW = 1, SALT_OUTLIER = 2, SALT_PAIR = 3, SALT_IDLE = 4 };

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t lathe_synthetic_key(uint64_t seed, const char *name) {
    uint64_t h = 0xcbf29ce484222325ull;
    for (const char *p = name; *p; ++p)
        h = (h ^ (unsigned char)*p) * 0x100000001b3ull;
    return mix(h ^ mix(seed + GOLDEN));
}

uint64_t lathe_synthetic_bits(uint64_t key, uint64_t index) {
    return mix(key + (index + 1) * GOLDEN);
}

double lathe_synthetic_uniform(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

double lathe_synthetic_normal(uint64_t bits) {
    const uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    /* four uniform numbers: variance 4/12 */
    return ((double)sum - 131070.0) * (0x1p-16 * 1.7320508075688772);
}

uint8_t lathe_synthetic_e4m3(double value) {
    const double a = fabs(value);
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    if (!(a < 448))
        return sign | (isnan(value) ? 0x7f : 0x7e);
    if (a == 0)
        return sign;
    int exponent;
    frexp(a, &exponent); /* a = f * 2^exponent, f in [1/2, 1) */
    const int unit = exponent - 4 < -9 ? -9 : exponent - 4;
    const double steps = nearbyint(ldexp(a, -unit));
    if (unit == -9)
        return sign | (uint8_t)steps; /* subnormals run on into the first binade */
    return sign | (uint8_t)(((unit + 9) << 3) + (int)steps);
}

uint16_t lathe_synthetic_bf16(double value) {
    const float f = (float)value;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    if ((word & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

bool lathe_synthetic_parse(const char *text, lathe_synthetic *synthetic) {
    const char *number;
    if (strncmp(text, "calm:", 5) == 0)
        number = text + 5;
    else if (strncmp(text, "unkind:", 7) == 0)
        number = text + 7;
    else
        return false;
    char *end;
    synthetic->unkind = text[0] == 'u';
    errno = 0;
    synthetic->seed = strtoull(number, &end, 10);
    return errno == 0 && *number >= '0' && *number <= '9' && *end == 0;
}

/* One tensor being generated. */
typedef struct {
    lathe_synthetic_tensor is;
    /* The row met last, so that neighbours share its hash. Each thread has a tensor of its own. */
    uint64_t row_begin, row_end, row_bits;
} tensor;

static uint64_t bits_of(tensor *t, uint64_t salt, uint64_t index) {
    return lathe_synthetic_bits(t->is.key + salt * 0xd1b54a32d192ed03ull, index);
}

static double normal_at(tensor *t, uint64_t i) {
    return lathe_synthetic_normal(lathe_synthetic_bits(t->is.key, i));
}

static double uniform_at(tensor *t, uint64_t i) {
    return lathe_synthetic_uniform(lathe_synthetic_bits(t->is.key, i));
}

static uint64_t bits_of_row(tensor *t, uint64_t i) {
    if (i < t->row_begin || i >= t->row_end) {
        const uint64_t row = i / t->is.last;
        t->row_begin = row * t->is.last;
        t->row_end = t->row_begin + t->is.last;
        t->row_bits = bits_of(t, SALT_ROW, row);
    }
    return t->row_bits;
}

static double power_of_two(int exponent) {
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A power of two between 2^low and 2^high for a row; zero for one row in `zero`. */
static double row_factor(tensor *t, uint64_t i, int low, int high, uint64_t zero) {
    const uint64_t b = bits_of_row(t, i);
    if ((b & 0xffff) % zero == 0)
        return 0;
    return power_of_two(low + (int)((b >> 16) % (uint64_t)(high - low + 1)));
}

static double weight_value(tensor *t, uint64_t i) {
    double v = normal_at(t, i) * t->is.spread;
    if (!t->is.unkind)
        return v;
    if (bits_of(t, SALT_OUTLIER, i) % 509 == 0)
        v *= 16;
    return v * row_factor(t, i, -3, 3, 32);
}

static double embedding_value(tensor *t, uint64_t i) {
    const double v = normal_at(t, i) * 0.0625;
    return t->is.unkind ? v * row_factor(t, i, -8, 10, 8) : v;
}

/* A product with a stream of width 1 is about normal, width 1, plus PULL for the one row that
 * follows the token whose embedding the stream still mostly is: no other row comes near, so that
 * greedy decoding yields the same tokens however the sums are rounded. */
#define PULL 8.0
static double head_value(tensor *t, uint64_t i) {
    const double v = normal_at(t, i) * t->is.spread;
    if (t->is.unkind)
        return weight_value(t, i);
    const uint64_t follows = (i / t->is.last + t->is.rows - t->is.shift) % t->is.rows;
    const uint64_t element = follows * t->is.last + i % t->is.last;
    return v + PULL / (double)t->is.last *
                   lathe_synthetic_normal(lathe_synthetic_bits(t->is.embedding, element));
}

static double offset_value(tensor *t, uint64_t i) {
    return t->is.unkind ? 5.5 * uniform_at(t, i) - 2.5 : 0.1 * normal_at(t, i);
}

static double gain_value(tensor *t, uint64_t i) {
    return t->is.unkind ? 5 * uniform_at(t, i) - 1 : 1 + 0.1 * normal_at(t, i);
}

/* Of a residual: calm branches weigh little, unkind ones reach the clamp at either end. */
static double gate_value(tensor *t, uint64_t i) {
    if (!t->is.unkind)
        return 0.3 * normal_at(t, i) - 1.2;
    const uint64_t b = bits_of(t, SALT_OUTLIER, i);
    if (b % 10 == 0)
        return (b >> 32) & 1 ? 9 : -9;
    return 2 * normal_at(t, i);
}

/* The expert whose scores expert e shares. Router and bias must agree, so the seed alone decides.
 */
static uint64_t twin_of(tensor *t, uint64_t e) {
    const uint64_t b = lathe_synthetic_bits(t->is.pair_key, e / 2);
    return t->is.unkind && b % 3 == 0 ? e & ~1ull : e;
}

static double router_value(tensor *t, uint64_t i) {
    const uint64_t e = twin_of(t, i / t->is.last);
    return normal_at(t, e * t->is.last + i % t->is.last) * t->is.spread * (t->is.unkind ? 4 : 8);
}

static double bias_value(tensor *t, uint64_t e) {
    if (t->is.unkind && lathe_synthetic_bits(t->is.idle_key, e / 2) % 6 == 0)
        return -10;
    return normal_at(t, twin_of(t, e)) * (t->is.unkind ? 0.25 : 0.1);
}

/* Times the codes (2.93 in root mean square) and the global scale, a calm weight is 1 / sqrt(K)
 * wide. */
#define CALM_GLOBAL 0x1p-12
static double block_scale_value(tensor *t, uint64_t i) {
    const double middle = t->is.spread * 0.25 / (2.93 * CALM_GLOBAL); /* K = 16 * last */
    const double v = middle * (0.6 + 0.8 * uniform_at(t, i));
    if (!t->is.unkind)
        return v;
    const uint64_t b = bits_of(t, SALT_OUTLIER, i);
    if (b % 61 == 0)
        return (b >> 32) & 1 ? 448 : 0x1p-9;
    return v * row_factor(t, i, -4, 1, 32);
}

/* Where two stand side by side (gate, up) they are apart by 8, either being the larger. */
static double global_value(tensor *t, uint64_t i) {
    const double v = CALM_GLOBAL * (1 + 0.1 * normal_at(t, i));
    if (!t->is.unkind)
        return v;
    const uint64_t row = bits_of(t, SALT_ROW, i / 2);
    if (t->is.last == 2)
        return ((i ^ row) & 1) ? v * 8 : v;
    return row % 16 == 0 ? v * 0x1p-12 : ldexp(v, (int)(row >> 8 & 7) - 4);
}

static double input_scale_value(tensor *t, uint64_t i) {
    const double v = 0.001 + 0.001 * uniform_at(t, i);
    return t->is.unkind ? ldexp(v, (int)(bits_of(t, SALT_ROW, i) % 5) - 3) : v;
}

/* Two codes a byte, eight bytes a hash. */
static double codes_value(tensor *t, uint64_t i) {
    if (t->is.unkind && bits_of_row(t, i) % 64 == 0)
        return 0;
    return (double)(lathe_synthetic_bits(t->is.key, i / 8) >> (i % 8 * 8) & 0xff);
}

typedef double value_function(tensor *t, uint64_t i);

static const struct {
    const char *init;
    value_function *value;
} kinds[LATHE_SYNTHETIC_KINDS] = {
    [LATHE_SYNTHETIC_WEIGHT] = {"weight", weight_value},
    [LATHE_SYNTHETIC_EMBEDDING] = {"embedding", embedding_value},
    [LATHE_SYNTHETIC_OFFSET] = {"offset", offset_value},
    [LATHE_SYNTHETIC_GAIN] = {"gain", gain_value},
    [LATHE_SYNTHETIC_GATE] = {"gate", gate_value},
    [LATHE_SYNTHETIC_ROUTER] = {"router", router_value},
    [LATHE_SYNTHETIC_BIAS] = {"bias", bias_value},
    [LATHE_SYNTHETIC_CODES] = {"codes", codes_value},
    [LATHE_SYNTHETIC_SCALES] = {"scales", block_scale_value},
    [LATHE_SYNTHETIC_GLOBAL_SCALE] = {"global_scale", global_value},
    [LATHE_SYNTHETIC_INPUT_SCALE] = {"input_scale", input_scale_value},
    [LATHE_SYNTHETIC_HEAD] = {"head", head_value},
};

/* LATHE_SYNTHETIC_KINDS for a name that is no kind. */
static lathe_synthetic_kind find_kind(const lathe_step_source *s) {
    if (!s->init) {
        if (s->dtype == LATHE_SCALAR_U8)
            return LATHE_SYNTHETIC_CODES;
        if (s->dtype == LATHE_SCALAR_E4M3)
            return LATHE_SYNTHETIC_SCALES;
        return s->shape.count > 1 ? LATHE_SYNTHETIC_WEIGHT : LATHE_SYNTHETIC_OFFSET;
    }
    const size_t length = strcspn(s->init, ":"); /* what follows belongs to "head" */
    int kind = 0;
    while (kind < LATHE_SYNTHETIC_KINDS &&
           (strncmp(kinds[kind].init, s->init, length) != 0 || kinds[kind].init[length] != 0))
        ++kind;
    return (lathe_synthetic_kind)kind;
}

static bool store(lathe_scalar dtype, double v, void *to, size_t i) {
    switch (dtype) {
    case LATHE_SCALAR_BF16:
        ((uint16_t *)to)[i] = lathe_synthetic_bf16(v);
        return true;
    case LATHE_SCALAR_F32:
        ((float *)to)[i] = (float)v;
        return true;
    case LATHE_SCALAR_E4M3:
        ((uint8_t *)to)[i] = lathe_synthetic_e4m3(v);
        return true;
    case LATHE_SCALAR_U8:
        ((uint8_t *)to)[i] = (uint8_t)v;
        return true;
    default:
        return false;
    }
}

/* A stretch of one tensor, made by one thread. */
typedef struct {
    tensor *t;
    value_function *value;
    lathe_scalar dtype;
    uint64_t offset, count;
    unsigned char *to;
} stretch;

static void *fill_stretch(void *context) {
    const stretch *s = context;
    tensor t = *s->t;
    for (uint64_t i = 0; i < s->count; ++i)
        store(s->dtype, s->value(&t, s->offset + i), s->to, i);
    return NULL;
}

static uint64_t count_threads(uint64_t elements) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n = elements / ELEMENTS_PER_THREAD;
    if (processors > 0 && n > (uint64_t)processors)
        n = (uint64_t)processors;
    if (n > THREADS_MAX)
        n = THREADS_MAX;
    return n < 1 ? 1 : n;
}

/* Large stretches are shared out; a thread that cannot start has its share done here. */
static void fill_threads(const stretch *whole) {
    stretch parts[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    bool started[THREADS_MAX] = {false};
    const uint64_t n = count_threads(whole->count);
    for (uint64_t i = 0; i < n; ++i) {
        const uint64_t begin = whole->count * i / n;
        parts[i] = *whole;
        parts[i].offset += begin;
        parts[i].count = whole->count * (i + 1) / n - begin;
        parts[i].to += begin * lathe_scalar_bytes(whole->dtype);
        started[i] = i > 0 && pthread_create(&threads[i], NULL, fill_stretch, &parts[i]) == 0;
    }
    for (uint64_t i = 0; i < n; ++i)
        if (!started[i])
            fill_stretch(&parts[i]);
    for (uint64_t i = 1; i < n; ++i)
        if (started[i])
            pthread_join(threads[i], NULL);
}

lathe_status lathe_synthetic_describe(const lathe_synthetic *synthetic,
                                      const lathe_step_source *source, const char *name,
                                      lathe_synthetic_tensor *out, char *message, size_t size) {
    const lathe_step_shape *shape = &source->shape;
    const int64_t last = shape->count > 0 ? shape->dim[shape->count - 1] : 1;
    const lathe_synthetic_kind kind = find_kind(source);
    unsigned char probe[8];
    if (kind == LATHE_SYNTHETIC_KINDS) {
        snprintf(message, size, "tensor '%s': unknown init '%s'", name, source->init);
        return LATHE_INVALID;
    }
    if (!store(source->dtype, 0, probe, 0)) {
        snprintf(message, size, "tensor '%s': no synthetic values of type %s", name,
                 lathe_scalar_name(source->dtype));
        return LATHE_UNSUPPORTED;
    }
    const uint64_t rows = shape->count > 0 ? (uint64_t)shape->dim[0] : 1;
    *out = (lathe_synthetic_tensor){.kind = (uint64_t)kind,
                                    .unkind = synthetic->unkind ? 1 : 0,
                                    .key = lathe_synthetic_key(synthetic->seed, name),
                                    .pair_key = mix(synthetic->seed + SALT_PAIR),
                                    .idle_key = mix(synthetic->seed + SALT_IDLE),
                                    .rows = rows,
                                    .shift = rows > 1 ? 1 + synthetic->seed % (rows - 1) : 0,
                                    .last = (uint64_t)last,
                                    .spread = 1 / sqrt((double)last)};
    if (source->init && strncmp(source->init, "head:", 5) == 0)
        out->embedding = lathe_synthetic_key(synthetic->seed, source->init + 5);
    return LATHE_OK;
}

static lathe_status read_synthetic(void *context, const lathe_step_source *source, const char *name,
                                   int64_t offset, int64_t count, void *to, char *message,
                                   size_t size) {
    tensor t = {.row_end = 0};
    const lathe_status status =
        lathe_synthetic_describe(context, source, name, &t.is, message, size);
    if (status != LATHE_OK)
        return status;
    const stretch s = {&t, kinds[t.is.kind].value, source->dtype, (uint64_t)offset, (uint64_t)count,
                       to};
    fill_threads(&s);
    return LATHE_OK;
}

static lathe_status generate_synthetic(void *context, lathe_generator *generator,
                                       const lathe_step_source *source, const char *name,
                                       const lathe_weight_runs *runs, void *memory, char *message,
                                       size_t size) {
    lathe_synthetic_tensor t;
    const lathe_status status = lathe_synthetic_describe(context, source, name, &t, message, size);
    return status == LATHE_OK ? lathe_generator_fill(generator, &t, source->dtype, runs, memory,
                                                     (lathe_message_buffer){message, size})
                              : status;
}

lathe_weight_reader lathe_synthetic_reader(lathe_synthetic *synthetic) {
    return (lathe_weight_reader){read_synthetic, synthetic, generate_synthetic};
}
