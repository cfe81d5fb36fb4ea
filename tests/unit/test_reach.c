/* SPDX-License-Identifier: Apache-2.0
 * Every provider is there for some deployment: each argument of each spec is bound in one of them,
 * each optional one is null in one of them, and each 0-or-1 constant takes both values. What none
 * reaches is dead or untested. */
#include "codegen_case.h"
#include "layout.h"
#include "provider.h"

#include <dirent.h>
#include <jansson.h>

TestSuite(reach, .init = case_begin, .fini = case_end, .timeout = 110);

static json_t
    *reached; /* set of "gemm/skinny y bound", "gemm/skinny y null", "gemm/skinny kPartials 1" */

static void reach(const char *provider, const char *what, const char *how) {
    json_object_set_new(reached, lathe_arena_print(case_arena, "%s %s %s", provider, what, how),
                        json_true());
}

static void reach_constants(const char *provider, const json_t *constants) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)constants, name, value) {
        if (json_is_integer(value) && json_integer_value(value) >= 0 &&
            json_integer_value(value) <= 1)
            reach(provider, name, json_integer_value(value) ? "1" : "0");
    }
}

/* Providers of kernels by name. */
static json_t *reach_kernels(const json_t *step) {
    json_t *providers = json_object();
    size_t index;
    json_t *kernel;
    json_array_foreach(json_object_get(step, "kernels"), index, kernel) {
        const char *provider = json_string_value(json_object_get(kernel, "provider"));
        json_object_set(providers, json_string_value(json_object_get(kernel, "name")),
                        json_object_get(kernel, "provider"));
        reach(provider, "-", "used");
        reach_constants(provider, json_object_get(kernel, "constants"));
    }
    return providers;
}

/* A collective is an operation of its own; the provider is named after its kind, and after its type
 * where that is i32. */
static void reach_collective(const json_t *op) {
    const char *type = json_string_value(json_object_get(op, "dtype"));
    const char *provider = lathe_arena_print(case_arena, "collective/%s%s",
                                             json_string_value(json_object_get(op, "kind")),
                                             strcmp(type, "i32") == 0 ? "_i32" : "");
    reach(provider, "-", "used");
    reach(provider, "from", "bound");
    reach(provider, "to", "bound");
}

/* Every launch below `value`, wherever it stands. */
static void reach_launches(const json_t *value, const json_t *providers) {
    const char *name;
    json_t *item;
    size_t index;
    json_array_foreach(value, index, item) reach_launches(item, providers);
    if (!json_is_object(value))
        return;
    const char *kernel = json_string_value(json_object_get(value, "kernel"));
    if (json_object_get(value, "count"))
        reach_collective(value);
    if (!kernel) {
        json_object_foreach((json_t *)(uintptr_t)value, name, item) reach_launches(item, providers);
        return;
    }
    const char *provider = json_string_value(json_object_get(providers, kernel));
    json_object_foreach(json_object_get(value, "args"), name, item)
        reach(provider, name, json_is_null(item) ? "null" : "bound");
}

static void generate(const char *layout, const lathe_deployment *d) {
    const lathe_generate_options o = {.layout = layout,
                                      .tp = d->tp,
                                      .deployment = d->name,
                                      .arch = "host",
                                      .out = case_path("out"),
                                      .no_scan = true};
    free(case_result.why);
    cr_assert(lathe_generate(&o, &case_result), "%s", case_result.message);
    json_t *step = json_load_file(case_path("out/step.json"), 0, NULL);
    cr_assert(step);
    json_t *providers = reach_kernels(step);
    reach_launches(json_object_get(step, "variants"), providers);
    reach_launches(json_object_get(step, "prepare"), providers);
    reach_launches(json_object_get(step, "probe"), providers);
    json_decref(providers);
    json_decref(step);
}

/* All deployments of a layout file; a file that returns no layout is only included by others. */
static void deploy(const char *folder, const char *name) {
    const char *path = lathe_arena_print(case_arena, "%s/%s", folder, name);
    if (!strstr(case_read(path), "return layout"))
        return;
    lathe_lua *lua = lathe_lua_create(case_arena, (lathe_lua_folders){LATHE_SOURCE_DIR, folder});
    const lathe_node returned = lathe_lua_run(lua, name, path);
    const lathe_layout *layout = lathe_layout_read(lua, name, &returned);
    for (size_t i = 0; i < layout->deployment_count; i++)
        generate(path, &layout->deployments[i]);
    lathe_lua_destroy(lua);
}

/* Calls `visit` for each .lua of a folder. */
static void each_file(const char *folder, void (*visit)(const char *folder, const char *name)) {
    struct dirent **entries;
    const int count = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(entries[i]->d_name);
        if (length > 4 && strcmp(entries[i]->d_name + length - 4, ".lua") == 0)
            visit(folder, entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

static void expect(const char *provider, const char *what, const char *how) {
    const char *shown = lathe_arena_print(case_arena, "%s %s %s", provider, what, how);
    cr_expect(json_object_get(reached, shown), "no deployment reaches %s", shown);
}

static void check_constant(const lathe_provider *p, const lathe_const *c) {
    const bool flag = c->source == LATHE_CONST_OPTION && c->min.integer == 0 &&
                      c->max.integer == 1 && c->max.kind == LATHE_NODE_INTEGER;
    if (!flag && c->source != LATHE_CONST_HAS)
        return;
    expect(p->name, c->name, "0");
    expect(p->name, c->name, "1");
}

static void check_provider(const char *folder, const char *name) {
    if (!strstr(case_read(lathe_arena_print(case_arena, "%s/%s", folder, name)), "return provider"))
        return;
    lathe_lua *lua = lathe_lua_create(case_arena, (lathe_lua_folders){LATHE_SOURCE_DIR, folder});
    const lathe_provider *p =
        lathe_provider_load(lua, (lathe_where){0},
                            lathe_arena_print(case_arena, "%s/%.*s", strrchr(folder, '/') + 1,
                                              (int)strlen(name) - 4, name));
    expect(p->name, "-", "used");
    for (size_t i = 0; i < p->arg_count; i++) {
        expect(p->name, p->args[i].name, "bound");
        if (p->args[i].optional)
            expect(p->name, p->args[i].name, "null");
    }
    for (size_t i = 0; i < p->constant_count; i++)
        check_constant(p, &p->constants[i]);
    lathe_lua_destroy(lua);
}

Test(reach, every_provider_in_all_its_variants) {
    if (!LATHE_TRY(&case_diag))
        cr_assert_fail("%s", case_diag.message);
    reached = json_object();
    each_file(LATHE_SOURCE_DIR "/layouts", deploy);
    each_file(LATHE_SOURCE_DIR "/layouts/cases", deploy);
    struct dirent **folders;
    const int count = scandir(LATHE_SOURCE_DIR "/templates", &folders, NULL, alphasort);
    cr_assert_gt(count, 2);
    for (int i = 0; i < count; i++) {
        if (folders[i]->d_name[0] != '.')
            each_file(
                lathe_arena_print(case_arena, LATHE_SOURCE_DIR "/templates/%s", folders[i]->d_name),
                check_provider);
        free(folders[i]);
    }
    free(folders);
    json_decref(reached);
}
