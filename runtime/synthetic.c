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
    bool unkind;
    uint64_t seed;
    uint64_t key;
    uint64_t embedding; /* key of the embedding that a head answers */
    uint64_t rows;      /* size of the first dimension */
    uint64_t last;      /* size of the last dimension */
    double spread;      /* 1 / sqrt(last) */
    /* The row met last, so that neighbours share its hash. Each thread has a tensor of its own. */
    uint64_t row_begin, row_end, row_bits;
} tensor;

static uint64_t bits_of(tensor *t, uint64_t salt, uint64_t index) {
    return lathe_synthetic_bits(t->key + salt * 0xd1b54a32d192ed03ull, index);
}

static double normal_at(tensor *t, uint64_t i) {
    return lathe_synthetic_normal(lathe_synthetic_bits(t->key, i));
}

static double uniform_at(tensor *t, uint64_t i) {
    return lathe_synthetic_uniform(lathe_synthetic_bits(t->key, i));
}

static uint64_t bits_of_row(tensor *t, uint64_t i) {
    if (i < t->row_begin || i >= t->row_end) {
        const uint64_t row = i / t->last;
        t->row_begin = row * t->last;
        t->row_end = t->row_begin + t->last;
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
    double v = normal_at(t, i) * t->spread;
    if (!t->unkind)
        return v;
    if (bits_of(t, SALT_OUTLIER, i) % 509 == 0)
        v *= 16;
    return v * row_factor(t, i, -3, 3, 32);
}

static double embedding_value(tensor *t, uint64_t i) {
    const double v = normal_at(t, i) * 0.0625;
    return t->unkind ? v * row_factor(t, i, -8, 10, 8) : v;
}

/* A product with a stream of width 1 is about normal, width 1, plus PULL for the one row that
 * follows the token whose embedding the stream still mostly is: no other row comes near, so that
 * greedy decoding yields the same tokens however the sums are rounded. */
#define PULL 8.0
static double head_value(tensor *t, uint64_t i) {
    const double v = normal_at(t, i) * t->spread;
    if (t->unkind)
        return weight_value(t, i);
    const uint64_t shift = t->rows > 1 ? 1 + t->seed % (t->rows - 1) : 0;
    const uint64_t follows = (i / t->last + t->rows - shift) % t->rows;
    const uint64_t element = follows * t->last + i % t->last;
    return v + PULL / (double)t->last *
                   lathe_synthetic_normal(lathe_synthetic_bits(t->embedding, element));
}

static double offset_value(tensor *t, uint64_t i) {
    return t->unkind ? 5.5 * uniform_at(t, i) - 2.5 : 0.1 * normal_at(t, i);
}

static double gain_value(tensor *t, uint64_t i) {
    return t->unkind ? 5 * uniform_at(t, i) - 1 : 1 + 0.1 * normal_at(t, i);
}

/* Of a residual: calm branches weigh little, unkind ones reach the clamp at either end. */
static double gate_value(tensor *t, uint64_t i) {
    if (!t->unkind)
        return 0.3 * normal_at(t, i) - 0.9;
    const uint64_t b = bits_of(t, SALT_OUTLIER, i);
    if (b % 10 == 0)
        return (b >> 32) & 1 ? 9 : -9;
    return 2 * normal_at(t, i);
}

/* The expert whose scores expert e shares. Router and bias must agree, so the seed alone decides.
 */
static uint64_t twin_of(tensor *t, uint64_t e) {
    const uint64_t b = lathe_synthetic_bits(mix(t->seed + SALT_PAIR), e / 2);
    return t->unkind && b % 3 == 0 ? e & ~1ull : e;
}

static double router_value(tensor *t, uint64_t i) {
    const uint64_t e = twin_of(t, i / t->last);
    return normal_at(t, e * t->last + i % t->last) * t->spread * (t->unkind ? 4 : 8);
}

static double bias_value(tensor *t, uint64_t e) {
    if (t->unkind && lathe_synthetic_bits(mix(t->seed + SALT_IDLE), e / 2) % 6 == 0)
        return -10;
    return normal_at(t, twin_of(t, e)) * (t->unkind ? 0.25 : 0.1);
}

/* Times the codes (2.93 in root mean square) and the global scale, a calm weight is 1 / sqrt(K)
 * wide. */
#define CALM_GLOBAL 0x1p-12
static double block_scale_value(tensor *t, uint64_t i) {
    const double middle = t->spread * 0.25 / (2.93 * CALM_GLOBAL); /* K = 16 * last */
    const double v = middle * (0.6 + 0.8 * uniform_at(t, i));
    if (!t->unkind)
        return v;
    const uint64_t b = bits_of(t, SALT_OUTLIER, i);
    if (b % 61 == 0)
        return (b >> 32) & 1 ? 448 : 0x1p-9;
    return v * row_factor(t, i, -4, 1, 32);
}

/* Where two stand side by side (gate, up) they are apart by 8, either being the larger. */
static double global_value(tensor *t, uint64_t i) {
    const double v = CALM_GLOBAL * (1 + 0.1 * normal_at(t, i));
    if (!t->unkind)
        return v;
    const uint64_t row = bits_of(t, SALT_ROW, i / 2);
    if (t->last == 2)
        return ((i ^ row) & 1) ? v * 8 : v;
    return row % 16 == 0 ? v * 0x1p-12 : ldexp(v, (int)(row >> 8 & 7) - 4);
}

static double input_scale_value(tensor *t, uint64_t i) {
    const double v = 0.001 + 0.001 * uniform_at(t, i);
    return t->unkind ? ldexp(v, (int)(bits_of(t, SALT_ROW, i) % 5) - 3) : v;
}

/* Two codes a byte, eight bytes a hash. */
static double codes_value(tensor *t, uint64_t i) {
    if (t->unkind && bits_of_row(t, i) % 64 == 0)
        return 0;
    return (double)(lathe_synthetic_bits(t->key, i / 8) >> (i % 8 * 8) & 0xff);
}

typedef double value_function(tensor *t, uint64_t i);

static const struct {
    const char *init;
    value_function *value;
} kinds[] = {
    {"weight", weight_value},
    {"embedding", embedding_value},
    {"offset", offset_value},
    {"gain", gain_value},
    {"gate", gate_value},
    {"router", router_value},
    {"bias", bias_value},
    {"codes", codes_value},
    {"scales", block_scale_value},
    {"global_scale", global_value},
    {"input_scale", input_scale_value},
    {"head", head_value},
};

/* NULL for a name that is no kind. */
static value_function *find_value(const lathe_step_source *s) {
    if (!s->init) {
        if (s->dtype == LATHE_SCALAR_U8)
            return codes_value;
        if (s->dtype == LATHE_SCALAR_E4M3)
            return block_scale_value;
        return s->shape.count > 1 ? weight_value : offset_value;
    }
    const size_t length = strcspn(s->init, ":"); /* what follows belongs to "head" */
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i)
        if (strncmp(kinds[i].init, s->init, length) == 0 && kinds[i].init[length] == 0)
            return kinds[i].value;
    return NULL;
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

static lathe_status read_synthetic(void *context, const lathe_step_source *source, const char *name,
                                   int64_t offset, int64_t count, void *to, char *message,
                                   size_t size) {
    const lathe_synthetic *synthetic = context;
    const lathe_step_shape *shape = &source->shape;
    const int64_t last = shape->count > 0 ? shape->dim[shape->count - 1] : 1;
    tensor t = {.unkind = synthetic->unkind, .seed = synthetic->seed, .last = (uint64_t)last};
    if (source->init && strncmp(source->init, "head:", 5) == 0)
        t.embedding = lathe_synthetic_key(synthetic->seed, source->init + 5);
    t.rows = shape->count > 0 ? (uint64_t)shape->dim[0] : 1;
    t.key = lathe_synthetic_key(synthetic->seed, name);
    t.spread = 1 / sqrt((double)last);
    stretch s = {&t, find_value(source), source->dtype, (uint64_t)offset, (uint64_t)count, to};
    if (!s.value) {
        snprintf(message, size, "tensor '%s': unknown init '%s'", name, source->init);
        return LATHE_INVALID;
    }
    unsigned char probe[8];
    if (!store(source->dtype, 0, probe, 0)) {
        snprintf(message, size, "tensor '%s': no synthetic values of type %s", name,
                 lathe_scalar_name(source->dtype));
        return LATHE_UNSUPPORTED;
    }
    fill_threads(&s);
    return LATHE_OK;
}

lathe_weight_reader lathe_synthetic_reader(lathe_synthetic *synthetic) {
    return (lathe_weight_reader){read_synthetic, synthetic};
}
