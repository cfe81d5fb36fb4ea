/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "safetensors.h"

static char folder[] = "test_safetensors_XXXXXX";
static char message[1024];

static void make_folder(void) {
    cr_assert_not_null(mkdtemp(folder));
}

static char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void remove_folder(void) {
    const char *names[] = {"model.safetensors", "a.safetensors", "b.safetensors",
                           "model.safetensors.index.json"};
    for (size_t i = 0; i < 4; ++i)
        unlink(in_folder(names[i]));
    rmdir(folder);
}

TestSuite(safetensors, .init = make_folder, .fini = remove_folder);

static void put_text(const char *name, const char *text) {
    FILE *f = fopen(in_folder(name), "wb");
    cr_assert(f);
    fputs(text, f);
    fclose(f);
}

static void put_file(const char *name, const char *header, size_t length, size_t data_bytes) {
    FILE *f = fopen(in_folder(name), "wb");
    cr_assert(f);
    for (int i = 0; i < 8; ++i)
        fputc((int)(length >> (8 * i)) & 255, f);
    fputs(header, f);
    for (size_t i = 0; i < data_bytes; ++i)
        fputc((int)(i & 255), f);
    fclose(f);
}

static void expect_refused(const char *header, size_t data_bytes, const char *words) {
    lathe_safetensors *c;
    put_file("model.safetensors", header, strlen(header), data_bytes);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_INVALID, "%s",
                 header);
    cr_assert_null(c);
    cr_assert(strstr(message, words), "'%s' lacks '%s'", message, words);
    cr_assert(strstr(message, "model.safetensors"));
}

#define A "\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}"
#define B "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]}"

Test(safetensors, a_pipe_is_refused_and_not_waited_for, .timeout = 20) {
    lathe_safetensors *c;
    cr_assert_eq(mkfifo(in_folder("model.safetensors"), 0600), 0);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "no regular file"), "%s", message);
    cr_assert_eq(mkfifo(in_folder("model.safetensors.index.json"), 0600), 0);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_IO);
    cr_assert(strstr(message, "index.json: Operation not supported"), "%s", message);
}

Test(safetensors, one_file_gives_its_tensors) {
    lathe_safetensors *c;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"}," B "," A "}  ";
    put_file("model.safetensors", header, strlen(header), 16);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK, "%s",
                 message);
    cr_assert_eq(lathe_safetensors_count(c), 2);
    const lathe_safetensor *a = lathe_safetensors_find(c, "a");
    cr_assert_eq(a, lathe_safetensors_at(c, 0));
    cr_assert_str_eq(a->dtype, "BF16");
    cr_assert_eq(a->rank, 2);
    cr_assert_eq(a->shape[1], 3);
    cr_assert_eq(a->bytes, 12);
    cr_assert_eq(a->data[5], 5);
    cr_assert_eq(lathe_safetensors_find(c, "b")->rank, 0);
    cr_assert_eq(lathe_safetensors_find(c, "b")->data[0], 12);
    cr_assert_null(lathe_safetensors_find(c, "c"));
    lathe_safetensors_close(c);
    cr_assert_eq(lathe_safetensors_open(in_folder("model.safetensors"), &c, message, 100),
                 LATHE_OK);
    lathe_safetensors_close(c);
}

Test(safetensors, an_index_joins_files) {
    lathe_safetensors *c;
    put_file("a.safetensors", "{" A "}", strlen("{" A "}"), 12);
    put_file("b.safetensors", "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 53,
             1);
    put_text("model.safetensors.index.json",
             "{\"metadata\":{},\"weight_map\":{\"c\":\"b.safetensors\",\"a\":\"a.safetensors\"}}");
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK, "%s",
                 message);
    cr_assert_eq(lathe_safetensors_count(c), 2);
    cr_assert(strstr(lathe_safetensors_find(c, "c")->file, "b.safetensors"));
    lathe_safetensors_close(c);
    cr_assert_eq(lathe_safetensors_open(in_folder("model.safetensors.index.json"), &c, message,
                                        sizeof message),
                 LATHE_OK, "%s", message);
    lathe_safetensors_close(c);
}

static void expect_index_refused(const char *text, lathe_status status, const char *words) {
    lathe_safetensors *c;
    put_file("a.safetensors", "{" A "}", strlen("{" A "}"), 12);
    put_text("model.safetensors.index.json", text);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), status, "%s", text);
    cr_assert_null(c);
    cr_assert(strstr(message, words), "'%s' lacks '%s'", message, words);
}

Test(safetensors, a_bad_index_is_refused) {
    expect_index_refused("{", LATHE_INVALID, "line 1");
    expect_index_refused("{}", LATHE_INVALID, "weight_map");
    expect_index_refused("{\"weight_map\":{\"a\":\"a.safetensors\",\"a\":\"a.safetensors\"}}",
                         LATHE_INVALID, "duplicate");
    expect_index_refused("{\"weight_map\":{\"a\":\"../a.safetensors\"}}", LATHE_INVALID,
                         "without folders");
    expect_index_refused("{\"weight_map\":{\"a\":7}}", LATHE_INVALID, "without folders");
    expect_index_refused("{\"weight_map\":{\"a\":\"absent.safetensors\"}}", LATHE_IO,
                         "absent.safetensors");
    expect_index_refused("{\"weight_map\":{\"z\":\"a.safetensors\"}}", LATHE_INVALID,
                         "'z' is not in a.safetensors");
}

/* c in two files; z in neither; d in one that the index does not name for it. */
Test(safetensors, all_that_is_wrong_is_listed) {
    lathe_safetensors *c;
    static const char two[] = "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                              "\"d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}";
    static const char wrong[] = "{\"e\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]},"
                                "\"f\":{\"dtype\":\"X8\",\"shape\":[1],\"data_offsets\":[1,2]}}";
    static const char apart[] = "{\"g\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                                "\"h\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
                                "\"i\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]}}";
    static const char *const words[] = {
        "/absent.safetensors: No such file",
        "/wrong.safetensors: tensor 'e': dtype and shape ask for 2 bytes",
        "/wrong.safetensors: tensor 'f': unknown dtype 'X8'",
        "/apart.safetensors: tensor 'h' overlaps 'g'",
        "/apart.safetensors: a hole of 2 bytes before tensor 'i'",
        "index.json: tensor 'z' is not in one.safetensors",
        "tensor 'c' is in ",
    };
    put_file("one.safetensors", two, sizeof two - 1, 2);
    put_file("two.safetensors", two, sizeof two - 1, 2);
    put_file("wrong.safetensors", wrong, sizeof wrong - 1, 2);
    put_file("apart.safetensors", apart, sizeof apart - 1, 6);
    put_text("model.safetensors.index.json",
             "{\"weight_map\":{\"c\":\"one.safetensors\",\"z\":\"one.safetensors\",\"d\":"
             "\"two.safetensors\",\"e\":\"wrong.safetensors\",\"g\":\"apart.safetensors\","
             "\"y\":\"absent.safetensors\"}}");
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_INVALID);
    int lines = 1;
    for (const char *p = message; *p; ++p)
        lines += *p == '\n';
    cr_assert_eq(lines, 8, "%s", message); /* c and d are both twice there */
    for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i)
        cr_assert(strstr(message, words[i]), "'%s' lacks '%s'", message, words[i]);
    char few[260];
    cr_assert_eq(lathe_safetensors_open(folder, &c, few, sizeof few), LATHE_INVALID);
    cr_assert(strstr(few, " more)"), "%s", few);
    cr_assert_lt(strlen(few), sizeof few);
}

Test(safetensors, a_tensor_that_the_index_leaves_out_is_found) {
    lathe_safetensors *c;
    put_file("a.safetensors", "{" A "," B "}", strlen("{" A "," B "}"), 16);
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"a.safetensors\"}}");
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK, "%s",
                 message);
    cr_assert_not_null(lathe_safetensors_find(c, "b"));
    cr_assert_eq(lathe_safetensors_count(c), 2);
    lathe_safetensors_close(c);
}

Test(safetensors, a_bad_header_is_refused) {
    expect_refused("", 0, "header");
    expect_refused("[]", 0, "no JSON object");
    expect_refused("{" A "," A "}", 12, "duplicate");
    expect_refused("{\"a\":{\"dtype\":\"BF16\",\"shape\":[2]}}", 4, "lacks");
    expect_refused("{\"a\":3}", 0, "lacks");
    expect_refused("{\"a\":{\"dtype\":\"X9\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "'X9'");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
                   "bad size");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4,
                   "bad size");
    expect_refused("{\"a\":{\"dtype\":\"F64\",\"shape\":[9223372036854775807,9223372036854775807],"
                   "\"data_offsets\":[0,4]}}",
                   4, "bad size");
    expect_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
        "dimensions");
}

Test(safetensors, data_that_does_not_tile_the_file_is_refused) {
    expect_refused("{" A "}", 11, "not within");
    expect_refused("{" A "}", 13, "1 bytes belong to no tensor");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,3]}}", 3,
                   "ask for 2");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,1]}}", 3,
                   "not within");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[-2,0]}}", 3,
                   "not within");
    expect_refused("{" A ",\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[11,13]}}", 13,
                   "'c' overlaps 'a'");
    expect_refused("{" A ",\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[13,15]}}", 15,
                   "a hole of 1 bytes before tensor 'c'");
}

Test(safetensors, a_header_longer_than_the_file_is_refused) {
    lathe_safetensors *c;
    put_file("model.safetensors", "{}", 3, 0);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_INVALID);
    put_file("model.safetensors", "{}", (size_t)-1, 0);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_INVALID);
    put_text("model.safetensors", "short");
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "shorter than 8"));
}

/* The file is as long as its header says; nothing of it is read. */
Test(safetensors, a_header_beyond_100_mb_is_refused) {
    lathe_safetensors *c;
    put_file("model.safetensors", "{}", 100000001, 0);
    cr_assert_eq(truncate(in_folder("model.safetensors"), 100000009), 0);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "found a header of 100000001 bytes"), "%s", message);
    cr_assert(strstr(message, "at most 100000000"), "%s", message);
}

Test(safetensors, a_missing_checkpoint_is_named) {
    lathe_safetensors *c;
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_IO);
    cr_assert(strstr(message, "neither"));
    cr_assert_eq(lathe_safetensors_open("no/such", &c, message, sizeof message), LATHE_IO);
    cr_assert(strstr(message, "no/such"));
}
