/* SPDX-License-Identifier: Apache-2.0
 * Tables of measured tactics as text: read, printed, changed in one place. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "tactic_file.h"

#define TABLE LATHE_SOURCE_DIR "/layouts/tactics/h200.lua"

static char said[512];
static const lathe_message_buffer message = {said, sizeof said};

static const char small[] = "-- a comment: tactic \"x\" {\n"
                            "return tactics \"g\" {\n"
                            "    doc = \"a GPU\", arch = \"sm_90a\", -- doc\n"
                            "    tactic \"f/a\" {\n"
                            "        shape = { kN = 8, kF = 0.5 }, rows = 1,\n"
                            "        choose = { { kT = 1 }, { kT = 2 } },\n"
                            "        record = { gpu = \"G\", median_us = 1.5, losers = {} },\n"
                            "    }, -- of a\n"
                            "}\n";

static lathe_tactic_file parse(const char *text) {
    lathe_tactic_file file;
    cr_assert_eq(lathe_tactic_file_parse("t.lua", text, &file, message), LATHE_OK, "%s", said);
    return file;
}

static const lathe_tactic_file_entry *find(const lathe_tactic_file *file, int64_t rows, int n) {
    json_t *constants = json_pack("{s:i,s:f,s:i}", "kN", n, "kF", 0.5, "kOther", 3);
    const lathe_tactic_file_entry *e = lathe_tactic_file_find(file, "f/a", rows, constants);
    json_decref(constants);
    return e;
}

Test(tactic_file, an_entry_is_found_by_provider_rows_and_shape) {
    lathe_tactic_file file = parse(small);
    cr_assert_eq(file.count, 1);
    cr_expect_str_eq(file.arch, "sm_90a");
    cr_expect_eq(file.entries[0].line, 4);
    cr_expect_eq(find(&file, 1, 8), &file.entries[0]);
    cr_expect_null(find(&file, 2, 8));
    cr_expect_null(find(&file, 1, 9));
    lathe_tactic_file_free(&file);
}

/* What is printed is read again as the same, and printing it again gives the same text. */
Test(tactic_file, the_table_of_this_repository_is_read_and_printed) {
    char *text;
    size_t bytes;
    cr_assert_eq(lathe_file_read(TABLE, 1 << 20, &text, &bytes), 0);
    lathe_tactic_file file;
    cr_assert_eq(lathe_tactic_file_parse("h200.lua", text, &file, message), LATHE_OK, "%s", said);
    cr_assert_geq(file.count, 5);
    for (int i = 0; i < file.count; ++i) {
        const lathe_tactic_file_entry *e = &file.entries[i];
        char *entry = lathe_tactic_file_print(e->provider, e->fields);
        char *put = lathe_tactic_file_put(text, &file, e, entry);
        lathe_tactic_file again = parse(put);
        cr_assert_eq(again.count, file.count);
        for (int k = 0; k < file.count; ++k)
            cr_expect(json_equal(again.entries[k].fields, file.entries[k].fields), "%d %d", i, k);
        char *twice = lathe_tactic_file_print(e->provider, again.entries[i].fields);
        cr_expect_str_eq(twice, entry);
        for (const char *line = entry; line; line = strchr(line + 1, '\n'))
            cr_expect_leq(strcspn(line + 1, "\n"), 132);
        lathe_tactic_file_free(&again);
        free(twice);
        free(put);
        free(entry);
    }
    lathe_tactic_file_free(&file);
    free(text);
}

Test(tactic_file, all_but_the_one_entry_stays) {
    lathe_tactic_file file = parse(small);
    char *changed = lathe_tactic_file_put(small, &file, &file.entries[0], "tactic \"f/a\" {}");
    cr_expect(strstr(changed, "-- a comment") &&
                  strstr(changed, "    tactic \"f/a\" {}, -- of a\n}\n"),
              "%s", changed);
    char *more = lathe_tactic_file_put(
        small, &file, NULL, "tactic \"f/b\" { shape = {kN=1}, rows = 0, choose = {{}} }");
    lathe_tactic_file_free(&file);
    file = parse(more);
    cr_assert_eq(file.count, 2);
    cr_expect_str_eq(file.entries[1].provider, "f/b");
    cr_expect(strstr(more, "    }, -- of a\n    tactic \"f/b\""), "%s", more);
    lathe_tactic_file_free(&file);
    free(changed);
    free(more);
}

Test(tactic_file, a_table_without_a_last_comma_gets_one) {
    static const char text[] = "return tactics \"g\" {\n    doc = \"a GPU\"\n}\n";
    lathe_tactic_file file = parse(text);
    char *more = lathe_tactic_file_put(text, &file, NULL, "X");
    cr_expect_str_eq(more, "return tactics \"g\" {\n    doc = \"a GPU\",\n    X,\n}\n");
    lathe_tactic_file_free(&file);
    free(more);
}

static void refused(const char *text, const char *why) {
    lathe_tactic_file file;
    cr_expect_eq(lathe_tactic_file_parse("t.lua", text, &file, message), LATHE_INVALID, "%s", text);
    cr_expect(strstr(said, why), "%s: %s", text, said);
}

Test(tactic_file, what_is_no_literal_table_is_refused_with_its_line) {
    refused("", "t.lua:1: found the end");
    refused("local x = 1\nreturn tactics \"g\" {}", "t.lua:1: found 'local'");
    refused("return tactics \"g\" {\n  doc = 1 + 2,\n}", "t.lua:2: found '+'");
    refused("return tactics \"g\" {\n  tactic \"a\" { shape = { kN = f(2) } },\n}", "t.lua:2");
    refused("return tactics \"g\" {\n\n  tactic \"a\" { rows = 1 },\n}",
            "t.lua:3: found 'tactic', allowed: a tactic with shape, rows and choose");
    refused("return tactics \"g\" { tactic \"a\" { 1, x = 2 } }", "names before all");
    refused("return tactics \"g\" { doc = \"a\\\"b\" }", "a string without escapes");
    refused("return tactics \"g\" { doc = \"a\" } x", "nothing more");
    refused("return tactics \"g\" { doc = \"a\"", "found the end");
    refused("return tactics \"g\" { other = 1 }", "doc, ceilings or tactic");
    refused("return tactics \"g\" { doc = {{{{{{{{{{{{{{{{{{{{}}}}}}}}}}}}}}}}}}}} }",
            "fewer tables");
}
