/* SPDX-License-Identifier: Apache-2.0
 * Synthetic weights that a device makes against those of the host, bit for bit: fill.cuh on the
 * host device, for every kind and type, sharded or not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "generator.h"
#include "synthetic.h"
#include "weights.h"

static char message[4096], root[256];
static lathe_device *device;
static lathe_compiler *compiler;
static lathe_generator *generator;
static const lathe_message_buffer text = {message, sizeof message};

static void open_compiler(const char *directory) {
    const lathe_compiler_options o = {.directory = directory, .host = true, .cache = root};
    cr_assert_eq(lathe_compiler_create(&o, &compiler, text), LATHE_OK, "%s", message);
}

static void set_up(void) {
    snprintf(root, sizeof root, "/tmp/lathe-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_device_host_create(0, 1, &device, message, sizeof message), LATHE_OK, "%s",
                 message);
}

static void tear_down(void) {
    lathe_generator_close(generator);
    lathe_compiler_destroy(compiler);
    device->ops->destroy(device);
    cr_assert_eq(lathe_folder_remove(root), 0);
}

TestSuite(generator, .init = set_up, .fini = tear_down, .timeout = 120);

static void open_generator(void) {
    open_compiler(LATHE_SOURCE_DIR);
    cr_assert_eq(lathe_generator_open(device, compiler, &generator, text), LATHE_OK, "%s", message);
}

/* A weight of two sources, joined along `axis`. */
typedef struct {
    lathe_step_buffer buffer;
    lathe_step_source sources[2];
    lathe_step_weight weight;
    lathe_step_table table;
    lathe_synthetic synthetic;
    lathe_weights weights;
} fixture;

static void set_up_weight(fixture *f, const lathe_step_source *one, bool unkind, int tp, int rank,
                          int axis) {
    memset(f, 0, sizeof *f);
    f->synthetic = (lathe_synthetic){unkind, 5};
    f->sources[0] = f->sources[1] = *one;
    f->sources[0].tensor = "a.{l}";
    f->sources[1].tensor = "b.{l}";
    f->buffer = (lathe_step_buffer){.name = "w", .dtype = one->dtype, .shape = one->shape};
    if (one->shard_axis >= 0)
        f->buffer.shape.dim[one->shard_axis] /= tp;
    f->buffer.shape.dim[axis] *= 2;
    f->buffer.fixed_bytes =
        lathe_step_shape_count(&f->buffer.shape, 0) * (int64_t)lathe_scalar_bytes(one->dtype);
    f->weight =
        (lathe_step_weight){.buffer = 0, .axis = axis, .source_count = 2, .sources = f->sources};
    f->table = (lathe_step_table){.tp = tp,
                                  .buffer_count = 1,
                                  .buffers = &f->buffer,
                                  .weight_count = 1,
                                  .weights = &f->weight};
    f->weights = (lathe_weights){&f->table, rank, lathe_synthetic_reader(&f->synthetic)};
}

static void expect_equal(fixture *f) {
    const size_t bytes = (size_t)f->buffer.fixed_bytes;
    unsigned char *wanted = malloc(bytes), *found = malloc(bytes);
    void *memory = NULL;
    cr_assert_eq(lathe_weights_fill(&f->weights, 0, 3, wanted, bytes, message, sizeof message),
                 LATHE_OK, "%s", message);
    cr_assert_eq(device->ops->alloc(device, bytes, &memory), LATHE_OK);
    cr_assert_eq(device->ops->fill(device, memory, 0x5a, bytes), LATHE_OK);
    cr_assert_eq(
        lathe_weights_generate(&f->weights, generator, 0, 3, memory, message, sizeof message),
        LATHE_OK, "%s", message);
    cr_assert_eq(device->ops->synchronize(device), LATHE_OK, "%s", device->message);
    cr_assert_eq(device->ops->copy_out(device, found, memory, bytes), LATHE_OK);
    for (size_t i = 0; i < bytes; ++i)
        cr_assert_eq(found[i], wanted[i], "%s %s unkind %d, shard %d of %lld groups, rank %d: %zu",
                     lathe_scalar_name(f->buffer.dtype), f->sources[0].init, f->synthetic.unkind,
                     f->sources[0].shard_axis, (long long)f->sources[0].shard_groups,
                     f->weights.rank, i);
    device->ops->release(device, memory);
    free(wanted);
    free(found);
}

/* Sizes that are no multiple of what a thread makes at once. */
static void expect_all_shards(lathe_step_source one, bool unkind) {
    one.shape = (lathe_step_shape){3, {4, 12, 20}};
    for (int shard = -1; shard < 3; ++shard)
        for (int groups = 1; groups <= (shard < 0 ? 1 : 2); ++groups)
            for (int rank = 0; rank < 2; ++rank) {
                fixture f;
                one.shard_axis = shard;
                one.shard_groups = groups;
                set_up_weight(&f, &one, unkind, 2, rank, (shard + groups) % 3);
                expect_equal(&f);
            }
}

static const char *const kinds[] = {"weight",      "embedding", "offset", "gain",   "gate",
                                    "router",      "bias",      "codes",  "scales", "global_scale",
                                    "input_scale", "head:a.3",  "head"};

Test(generator, gives_the_hosts_bits_for_every_kind_type_and_shard) {
    static const lathe_scalar types[] = {LATHE_SCALAR_BF16, LATHE_SCALAR_F32, LATHE_SCALAR_E4M3};
    open_generator();
    for (int unkind = 0; unkind < 2; ++unkind) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; ++k)
            for (size_t d = 0; d < sizeof types / sizeof types[0]; ++d)
                expect_all_shards((lathe_step_source){.init = kinds[k], .dtype = types[d]}, unkind);
        expect_all_shards((lathe_step_source){.init = "codes", .dtype = LATHE_SCALAR_U8}, unkind);
    }
}

Test(generator, gives_the_hosts_bits_where_no_kind_is_named_and_for_pairs) {
    static const lathe_scalar types[] = {LATHE_SCALAR_BF16, LATHE_SCALAR_F32, LATHE_SCALAR_E4M3,
                                         LATHE_SCALAR_U8};
    static const lathe_step_shape shapes[] = {{1, {500}}, {2, {250, 2}}, {2, {33, 64}}};
    open_generator();
    for (size_t d = 0; d < 4; ++d)
        for (size_t s = 0; s < 3; ++s)
            for (int named = 0; named < (types[d] == LATHE_SCALAR_F32 ? 2 : 1); ++named) {
                fixture f;
                const lathe_step_source one = {.init = named ? "global_scale" : NULL,
                                               .dtype = types[d],
                                               .shape = shapes[s],
                                               .shard_axis = -1,
                                               .shard_groups = 1};
                set_up_weight(&f, &one, true, 1, 0, 0);
                expect_equal(&f);
            }
}

/* More than a grid makes at once. */
Test(generator, gives_the_hosts_bits_of_a_large_tensor) {
    fixture f;
    const lathe_step_source one = {.init = "scales",
                                   .dtype = LATHE_SCALAR_E4M3,
                                   .shape = {3, {3, 250, 512}},
                                   .shard_axis = 1,
                                   .shard_groups = 1};
    open_generator();
    set_up_weight(&f, &one, true, 2, 1, 1);
    expect_equal(&f);
}

Test(generator, a_directory_without_the_kernel_is_an_error_that_names_it) {
    open_compiler(LATHE_SOURCE_DIR "/tests/unit/fixtures");
    cr_assert_eq(lathe_generator_open(device, compiler, &generator, text), LATHE_IO);
    cr_assert(strstr(message, "templates/synthetic/fill.cuh"), "%s", message);
    cr_assert_null(generator);
}

Test(generator, what_the_host_refuses_is_refused_alike) {
    fixture f;
    const lathe_step_source one = {.init = "brightness",
                                   .dtype = LATHE_SCALAR_F32,
                                   .shape = {1, {4}},
                                   .shard_axis = -1,
                                   .shard_groups = 1};
    open_generator();
    set_up_weight(&f, &one, false, 1, 0, 0);
    cr_assert_eq(lathe_weights_generate(&f.weights, generator, 0, 3, NULL, message, sizeof message),
                 LATHE_INVALID);
    cr_assert(strstr(message, "'brightness'"), "%s", message);
}
