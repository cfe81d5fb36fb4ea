/* SPDX-License-Identifier: Apache-2.0
 * Specs: what they may say, and that a slip in one is refused at its own line. */
#include "codegen_case.h"
#include "provider.h"

static lathe_lua *lua;

static void begin(void) {
    case_begin();
    (void)mkdir(case_path("templates"), 0777);
    (void)mkdir(case_path("templates/fix"), 0777);
}

static void end(void) {
    lathe_lua_destroy(lua);
    case_end();
}

TestSuite(provider, .init = begin, .fini = end);

static const lathe_provider *load(const char *name) {
    lathe_lua_destroy(lua);
    lua = lathe_lua_create(case_arena, (lathe_lua_folders){case_folder, case_folder});
    return lathe_provider_load(lua, (lathe_where){"use.lua", 4}, name);
}

static const char *product(void) {
    return case_read(FIXTURES "/templates/fix/product.lua");
}

/* fix/product with one change must be refused with `wanted`. */
static void refused(const char *from, const char *to, const char *wanted) {
    case_write("templates/fix/product.lua", case_replace(product(), from, to));
    if (LATHE_TRY(&case_diag)) {
        (void)load("fix/product");
        cr_assert_fail("passed: %s", to);
    }
    cr_assert(strstr(case_diag.message, wanted), "no \"%s\" in: %s", wanted, case_diag.message);
}

Test(provider, a_spec_becomes_a_struct) {
    case_write("templates/fix/product.lua", product());
    const lathe_provider *p = load("fix/product");
    cr_assert_str_eq(p->entry, "fix_product");
    cr_assert_str_eq(p->spec, "templates/fix/product.lua");
    cr_assert(p->early && p->triggers);
    cr_assert_eq(p->constant_count, 7);
    cr_assert_eq(p->tactic_count, 2);
    cr_assert_eq(p->constants[lathe_provider_constant(p, "kPartials")].source, LATHE_CONST_OPTION);
    cr_assert_eq(p->constants[lathe_provider_constant(p, "kThreads")].source, LATHE_CONST_COMPUTED);
    cr_assert_eq(p->constants[lathe_provider_constant(p, "kN")].source, LATHE_CONST_SHAPE);
    cr_assert_eq(lathe_provider_constant(p, "kNone"), -1);
    const lathe_arg *y = &p->args[lathe_provider_arg(p, "y_partials")];
    cr_assert_eq(y->form, LATHE_K_PARTIALS);
    cr_assert_eq(y->dtype, LATHE_F32);
    cr_assert_eq(y->rank, 3);
    cr_assert_eq(y->dims[0].constant, lathe_provider_constant(p, "kSplits"));
    const lathe_arg *counters = &p->args[lathe_provider_arg(p, "counters")];
    cr_assert(counters->zeroed && counters->dir == LATHE_DIR_WORKSPACE);
    cr_assert_eq(counters->where.line, 21);
}

static void not_loaded(const char *name, const char *wanted) {
    if (LATHE_TRY(&case_diag)) {
        (void)load(name);
        cr_assert_fail("passed");
    }
    cr_expect(strstr(case_diag.message, wanted), "%s", case_diag.message);
}

Test(provider, unknown_providers_name_the_use) {
    const char *const names[][2] = {{"fix/none", "use.lua:4: use \"fix/none\": unknown provider"},
                                    {"none", "allowed: FOLDER/NAME"},
                                    {"../fix/none", "allowed: FOLDER/NAME"},
                                    {"fix/", "allowed: FOLDER/NAME"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        not_loaded(names[i][0], names[i][1]);
}

Test(provider, unknown_fields) {
    refused("early = true,", "erly = true,",
            "templates/fix/product.lua:2: provider \"fix/product\": unknown field 'erly'");
    refused("option = \"partials\"", "options = \"partials\"",
            ":9: const \"kPartials\": unknown field 'options'");
    refused("zeroed = true", "zero = true", ":21: arg \"counters\": unknown field 'zero'");
    refused("dir = \"in\", dtype", "when = function() end, dir = \"in\", dtype",
            ":15: arg \"x\": unknown field 'when'");
}

Test(provider, spills_are_allowed_with_a_reason) {
    case_write("templates/fix/product.lua", product());
    cr_expect_null(load("fix/product")->spills);
    case_write("templates/fix/product.lua",
               case_replace(product(), "early = true,", "early = true, spills = \"rarely run\","));
    cr_expect_str_eq(load("fix/product")->spills, "rarely run");
    refused("early = true,", "early = true, spills = \"\",",
            "field 'spills': found nothing, allowed: why its kernels may spill registers");
    refused("early = true,", "early = true, spills = true,", "field 'spills'");
}

Test(provider, the_name_is_the_files) {
    refused("provider \"fix/product\"", "provider \"fix/other\"",
            "the name must be that of the file, fix/product");
}

Test(provider, constants) {
    refused("\"kN\" { type = \"int\"", "\"kN\" { type = \"long\"",
            ":7: const \"kN\": field 'type'");
    refused("const \"kK\"", "const \"kN\"", ":8: const \"kN\": the name stands twice");
    refused("const \"kK\"", "const \"k K\"", "allowed: a name like kTile");
    refused("option = \"partials\"", "option = \"partials\", tactic = true",
            "one of the fields from, option, has, ranks, value, tactic");
    refused("option = \"partials\"", "from = \"partials\"", "allowed: \"KIND.ATTRIBUTE\"");
    refused("option = \"partials\"", "has = \"none\"",
            ":9: const \"kPartials\": field 'has': no argument is called \"none\"");
    refused("min = 0, max = 1", "min = \"0\"",
            "field 'min': found the string \"0\", allowed: a number");
}

Test(provider, arguments) {
    refused("dir = \"out\", dtype = \"bf16\"", "dir = \"output\", dtype = \"bf16\"",
            ":17: arg \"y\": field 'dir'");
    refused("dtype = \"u32\"", "dtype = \"u31\"", ":21: arg \"counters\": dtype");
    refused("form = \"k_partials\"", "form = \"partial\"", ":19: arg \"y_partials\": field 'form'");
    refused("shape = { \"kN\", \"kK\" }", "shape = { \"kN\", \"kX\" }",
            ":16: arg \"w\": field 'shape': no constant is called kX");
    refused("shape = { \"kN\", \"kK\" }", "shape = { \"kN\", -1 }", "found -1");
    refused("shape = { \"kN\", \"kK\" }", "shape = {}", "allowed: 1 to 8 dimensions");
    refused("port = \"gemm.w\"", "port = \"w\"", "found w, allowed: \"KIND.PORT\"");
    refused("port = \"gemm.w\"", "optional = true", ":16: arg \"w\": field 'port'");
    refused("arg \"w\"", "arg \"x\"", ":16: arg \"x\": the name stands twice");
    refused("arg \"w\"", "arg \"w-1\"", "allowed: a name that C++ allows");
}

Test(provider, parts_and_functions) {
    refused("parts = { \"gemm\" }", "parts = {}", "field 'parts'");
    refused("parts = { \"gemm\" }", "parts = { \"gemm\", \"gemm\" }", "stands twice: gemm");
    refused("parts = { \"gemm\" }", "parts = { { \"gemm\" }, \"add\" }",
            "parts: found the string \"add\"");
    refused("entry = \"fix_product\"", "entry = \"fix product\"", "field 'entry'");
    refused("default = function(c)", "unsupported = function(c)",
            "field 'default': a function is needed");
    refused("cost = function", "launch = function", "field 'cost'");
}

/* fix/product with one change, used by the base layout, must be refused with `wanted`. */
static void fails(const char *from, const char *to, const char *wanted) {
    static const char *const others[] = {"norm", "add", "route", "mix", "copy", "gate"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *name = lathe_arena_print(case_arena, "templates/fix/%s.lua", others[i]);
        case_write(name, case_read(lathe_arena_print(case_arena, "%s/%s", FIXTURES, name)));
    }
    case_write("templates/fix/product.lua", case_replace(product(), from, to));
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.root = case_folder}),
                  "passed: %s", to);
    case_expect_message((const char *const[]){wanted, NULL});
}

Test(provider, results_of_functions) {
    fails("block = c.kThreads", "block = 0", "templates/fix/product.lua:23: launch: field 'block'");
    fails("block = c.kThreads", "blocks = c.kThreads", "unknown field 'blocks'");
    fails("grid = { c.kN, c.kSplits }", "grid = { c.kN, 0 }", ":23: launch: grid: found 0");
    fails("grid = { c.kN, c.kSplits }", "grid = { c.kN, 1, 65536 }",
          "found 65536, allowed: an integer from 1 to 65535");
    fails("c.kWarps * 32 end", "c.kWarps / 2 end",
          "constant kThreads (templates/fix/product.lua:12, computed): found 2.0");
    fails("bytes = 2 * c.kN * c.kK", "bytes = -1", "field 'bytes': found -1");
    fails("return c.kPartials == 0 end", "return c.kPartials end",
          "'when' returned 0, allowed: true or false");
    fails("kWarps = 4 } end", "kWarps = 5 } end",
          "kWarps=5 of fix/product: the spec has none such for this shape on sm_90a; allowed: ");
    fails("kWarps = 4 } end", "kWarps = 9 } end", "found 9, allowed: from 1 to 8");
    fails("return c.kPartials == 0 end", "return c.kPartial == 0 end",
          ":18: nothing is called 'kPartial' here");
}
