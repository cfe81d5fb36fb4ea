/* SPDX-License-Identifier: Apache-2.0
 * Seeded step inputs, written to memory that stands in for an engine: pages are shuffled and used
 * once, what no query may see is NaN, what must not be read is nonsense. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "named.h"
#include "step_files.h"
#include "step_inputs.h"

enum { TOKENS, POSITIONS, TABLE, LENGTHS, SLOTS, CACHE, WEIGHT, OWN, BUFFERS };
enum {
    REQUESTS = 4,
    Q = 3,
    ROWS = REQUESTS * Q,
    WIDTH = 8,
    PAGE = 4,
    PAGES = 33,
    HEADS = 2,
    KV = 6
};

static unsigned char memory[BUFFERS][2][65536];
static lathe_step_table *table;
static int64_t cache_pages = PAGES;
static char message[1024];

/* The engine, as far as inputs need one. */
const lathe_step_table *lathe_engine_table(const lathe_engine *engine) {
    (void)engine;
    return table;
}

const char *lathe_message(const lathe_engine *engine) {
    (void)engine;
    return "no such memory";
}

lathe_status lathe_engine_find(lathe_engine *engine, const char *name, int layer,
                               lathe_engine_memory *m) {
    (void)engine;
    const int b = lathe_step_table_find_buffer(table, name);
    if (b < 0)
        return LATHE_INVALID;
    *m = (lathe_engine_memory){
        .buffer = &table->buffers[b], .layer = layer, .shape = table->buffers[b].shape};
    if (b == CACHE)
        m->shape.dim[0] = cache_pages;
    m->bytes =
        (size_t)lathe_step_shape_count(&m->shape, 0) * lathe_scalar_bytes(table->buffers[b].dtype);
    return LATHE_OK;
}

lathe_status lathe_engine_write(lathe_engine *engine, const char *name, int layer, size_t offset,
                                const void *host, size_t bytes) {
    (void)engine;
    const int b = lathe_step_table_find_buffer(table, name);
    cr_assert(b >= 0 && offset + bytes <= sizeof memory[b][0]);
    memcpy(memory[b][layer == 2] + offset, host, bytes);
    return LATHE_OK;
}

/* A step of one launch, which reads the tokens and the table that they index. The window stands
 * where %d does. */
static const char text[] =
    "{'format':1,'layout':'t','deployment':'','tp':1,'arch':'host','hash':'0123456789abcdef',"
    "'limits':{'max_context':32,'page_tokens':4,'max_rows':12,'max_requests':4},"
    "'groups':[{'name':'g','window':%d,'table_width':8}],'buffers':["
    "{'name':'tokens','dtype':'i32','shape':[12],'lifetime':'input','scope':'step'},"
    "{'name':'positions','dtype':'i64','shape':[12],'lifetime':'input','scope':'step'},"
    "{'name':'block_tables.g','dtype':'i32','shape':[4,8],'lifetime':'input','scope':'step'},"
    "{'name':'seq_lens.g','dtype':'i32','shape':[4],'lifetime':'input','scope':'step'},"
    "{'name':'slot_mapping.g','dtype':'i64','shape':[12],'lifetime':'input','scope':'step'},"
    "{'name':'kv','dtype':'bf16','shape':[0,2,4,6],'lifetime':'kv','scope':'layer',"
    "'layers':[0,2],'group':'g'},"
    "{'name':'embed','dtype':'bf16','shape':[50,8],'lifetime':'weight','scope':'step'},"
    "{'name':'s','dtype':'f32','shape':[12,5],'lifetime':'input','scope':'step'}],"
    "'weights':[{'buffer':'embed','axis':0,'sources':["
    "{'tensor':'embed','dtype':'bf16','shape':[50,8],'shard':null}]}],'mailboxes':[],"
    "'kernels':[{'name':'k','provider':'p/k','parts':['k'],'constants':{},'args':["
    "{'name':'tokens','dtype':'i32','shape':[12],'dir':'in','form':'whole'},"
    "{'name':'table','dtype':'bf16','shape':[50,8],'dir':'in','form':'whole'}],"
    "'bytes':0,'operations':0,'early':false,'triggers':false,'tactics':[{'name':'t',"
    "'file':'k.cu','entry':'k','grid':[1,1,1],'block':32,'shared':0,'registers':32,"
    "'cooperative':false,'constants':{}}]}],'prepare':[],'layers':['l','l','l'],"
    "'variants':[{'name':'4x3','requests':4,'q':3,'prologue':[{'op':'launch','kernel':'k',"
    "'early':false,'stream':0,'args':{'tokens':'tokens','table':'embed'}}],"
    "'kinds':{'l':[]},'epilogue':[]}]}";

static void set_up(int window) {
    static char json[8192];
    const int n = snprintf(json, sizeof json, text, window);
    for (int i = 0; i < n; ++i)
        if (json[i] == '\'')
            json[i] = '"';
    lathe_step_table_destroy(table);
    cr_assert_eq(lathe_step_table_parse(json, (size_t)n, "test", &table, message, sizeof message),
                 LATHE_OK, "%s", message);
    memset(memory, 0xaa, sizeof memory);
}

static void tear_down(void) {
    lathe_step_table_destroy(table);
}

TestSuite(step_inputs, .fini = tear_down);

static void write_inputs(const lathe_step_inputs *inputs) {
    cr_assert_eq(lathe_step_inputs_write(NULL, 0, inputs, message, sizeof message), LATHE_OK, "%s",
                 message);
}

static int32_t length_of(int64_t r) {
    return ((const int32_t *)(const void *)memory[LENGTHS][0])[r];
}

static int32_t entry_of(int64_t r, int64_t page) {
    return ((const int32_t *)(const void *)memory[TABLE][0])[r * WIDTH + page];
}

/* Whether the cache row of a position holds numbers in every element (1), in none (0), or in some
 * (-1). */
static int is_filled(int layer, int64_t r, int64_t position) {
    const uint16_t *cache = (const uint16_t *)(const void *)memory[CACHE][layer == 2];
    int filled = 0;
    for (int64_t h = 0; h < HEADS; ++h)
        for (int64_t i = 0; i < KV; ++i) {
            const int64_t row = (entry_of(r, position / PAGE) * HEADS + h) * PAGE + position % PAGE;
            filled += (cache[row * KV + i] & 0x7f80) != 0x7f80;
        }
    return filled == 0 ? 0 : filled == HEADS * KV ? 1 : -1;
}

static void expect_sound(int64_t window) {
    bool used[PAGES] = {false};
    const int64_t *slots = (const int64_t *)(const void *)memory[SLOTS][0];
    const int64_t *positions = (const int64_t *)(const void *)memory[POSITIONS][0];
    const int32_t *tokens = (const int32_t *)(const void *)memory[TOKENS][0];
    for (int64_t r = 0; r < REQUESTS; ++r) {
        const int64_t n = length_of(r);
        const int64_t before = n - Q;
        const int64_t first = window && before - window + 1 > 0 ? before - window + 1 : 0;
        for (int64_t p = 0; p < WIDTH; ++p) {
            const int32_t e = entry_of(r, p);
            const bool needed = n > 0 && (p + 1) * PAGE > first && p * PAGE < n;
            cr_assert(needed == (e >= 0 && e < PAGES), "request %lld page %lld: %d", (long long)r,
                      (long long)p, e);
            cr_assert(!needed || !used[e]);
            if (needed)
                used[e] = true;
        }
        for (int64_t at = first / PAGE * PAGE; at < n; ++at)
            for (int l = 0; l < 3; l += 2)
                cr_assert_eq(is_filled(l, r, at), at >= first && at < before);
        for (int64_t i = 0; i < Q; ++i) {
            const int64_t row = r * Q + i;
            cr_assert(tokens[row] >= 0 && tokens[row] < 50);
            cr_assert_eq(positions[row], n ? before + i : 0);
            const int64_t at = before + i;
            cr_assert_eq(slots[row],
                         n ? (int64_t)entry_of(r, at / PAGE) * PAGE + at % PAGE : (int64_t)-1);
        }
    }
}

Test(step_inputs, every_context_and_window_is_sound) {
    for (int window = 0; window <= 9; window += 3)
        for (int64_t context = Q; context <= WIDTH * PAGE; ++context) {
            const lathe_step_inputs inputs = {.seed = (uint64_t)context, .context = context};
            set_up(window);
            write_inputs(&inputs);
            cr_assert_eq(length_of(0), context);
            cr_assert_eq(length_of(2), Q);
            expect_sound(window);
        }
}

Test(step_inputs, pages_are_shuffled_and_seeded) {
    lathe_step_inputs inputs = {.seed = 1};
    static unsigned char first[sizeof memory];
    set_up(0);
    write_inputs(&inputs);
    bool ascending = true;
    for (int64_t p = 1; p < WIDTH; ++p)
        ascending = ascending && entry_of(0, p) > entry_of(0, p - 1);
    cr_assert(!ascending);
    memcpy(first, memory, sizeof memory);
    memset(memory, 0xaa, sizeof memory);
    write_inputs(&inputs);
    cr_assert_eq(memcmp(first, memory, sizeof memory), 0);
    inputs.seed = 2;
    write_inputs(&inputs);
    cr_assert_neq(memcmp(first, memory, sizeof memory), 0);
}

Test(step_inputs, the_last_request_may_be_padding) {
    const lathe_step_inputs inputs = {.seed = 3, .padding = true};
    set_up(6);
    write_inputs(&inputs);
    cr_assert_eq(length_of(REQUESTS - 1), 0);
    expect_sound(6);
}

Test(step_inputs, an_input_of_the_layout_s_own_is_filled) {
    const lathe_step_inputs inputs = {.seed = 3};
    set_up(0);
    write_inputs(&inputs);
    const float *s = (const float *)(const void *)memory[OWN][0];
    float most = 0;
    for (int i = 0; i < ROWS * 5; ++i) {
        cr_assert(s[i] > -4 && s[i] < 4);
        most = s[i] > most ? s[i] : most;
    }
    cr_assert_gt(most, 0.5f);
}

Test(step_inputs, too_few_pages_are_refused_with_what_is_allowed) {
    set_up(0);
    cache_pages = 1;
    const lathe_step_inputs inputs = {.seed = 1, .context = 32};
    cr_assert_eq(lathe_step_inputs_write(NULL, 0, &inputs, message, sizeof message), LATHE_INVALID);
    int64_t wanted = 0;
    cr_assert_eq(
        sscanf(message, "group g: found 1 pages, allowed: at least %ld for this batch", &wanted), 1,
        "%s", message);
    cache_pages = wanted - 1;
    cr_assert_eq(lathe_step_inputs_write(NULL, 0, &inputs, message, sizeof message), LATHE_INVALID);
    cache_pages = wanted;
    cr_assert_eq(lathe_step_inputs_write(NULL, 0, &inputs, message, sizeof message), LATHE_OK, "%s",
                 message);
}

Test(step_inputs, a_context_that_does_not_fit_is_refused) {
    lathe_step_inputs inputs = {.seed = 3, .context = WIDTH * PAGE + 1};
    set_up(0);
    cr_assert_eq(lathe_step_inputs_write(NULL, 0, &inputs, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "allowed are 3"), "%s", message);
    inputs.context = Q - 1;
    cr_assert_eq(lathe_step_inputs_write(NULL, 0, &inputs, message, sizeof message), LATHE_INVALID);
}

/* Files of three requests for a step of four are no variant of it; of four they are, with a
 * narrower table. */
Test(step_inputs, files_name_their_variant) {
    static const int32_t ints[ROWS];
    static const int64_t longs[ROWS];
    static char folder[] = "test_step_inputs_XXXXXX";
    const lathe_step_shape rows = {1, {ROWS}};
    const lathe_step_shape requests = {1, {REQUESTS}};
    const lathe_step_shape narrow = {2, {REQUESTS, 2}};
    const lathe_step_shape own = {2, {ROWS, 5}};
    int found;
    set_up(0);
    cr_assert_not_null(mkdtemp(folder));
    cr_assert(!lathe_step_files_exist(folder));
    const struct {
        const char *name;
        lathe_scalar dtype;
        const lathe_step_shape *shape;
        const void *data;
    } files[] = {{"tokens", LATHE_SCALAR_I32, &rows, ints},
                 {"positions", LATHE_SCALAR_I64, &rows, longs},
                 {"seq_lens.g", LATHE_SCALAR_I32, &requests, ints},
                 {"slot_mapping.g", LATHE_SCALAR_I64, &rows, longs},
                 {"s", LATHE_SCALAR_F32, &own, memory},
                 {"block_tables.g", LATHE_SCALAR_I32, &narrow, ints}};
    const lathe_step_inputs inputs = {.from = folder};
    for (size_t i = 0; i < 6; ++i) {
        cr_assert_eq(lathe_named_write(folder, files[i].name, files[i].dtype, files[i].shape,
                                       (void *)(uintptr_t)files[i].data, message, sizeof message),
                     LATHE_OK, "%s", message);
        if (i == 2) {
            cr_assert_eq(lathe_step_inputs_write(NULL, 0, &inputs, message, sizeof message),
                         LATHE_INVALID);
            cr_assert(strstr(message, "no file block_tables.g.npy"), "%s", message);
        }
    }
    cr_assert(lathe_step_files_exist(folder));
    cr_assert_eq(lathe_step_files_variant(table, folder, &found, message, sizeof message), LATHE_OK,
                 "%s", message);
    cr_assert_eq(found, 0);
    write_inputs(&inputs);
    cr_assert_eq(entry_of(1, 1), 0);
    cr_assert_eq(entry_of(1, 2), -1);
    const lathe_step_shape fewer = {1, {REQUESTS - 1}};
    cr_assert_eq(lathe_named_write(folder, "seq_lens.g", LATHE_SCALAR_I32, &fewer,
                                   (void *)(uintptr_t)ints, message, sizeof message),
                 LATHE_OK);
    cr_assert_eq(lathe_step_files_variant(table, folder, &found, message, sizeof message),
                 LATHE_INVALID);
    cr_assert(strstr(message, "the variants 4x3"), "%s", message);
    for (size_t i = 0; i < 6; ++i) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s.npy", folder, files[i].name);
        remove(path);
    }
    remove(folder);
}
