/* SPDX-License-Identifier: Apache-2.0
 * The sandbox: what a chunk may do, what it may not, and that the same chunk always gives the same.
 */
#include "codegen_case.h"
#include "lua_box.h"

#include <time.h>

static lathe_lua *lua;
static int64_t tp;
static double limit; /* seconds; 0: as it is */

static void begin(void) {
    case_begin();
    lua = lathe_lua_create(case_arena, (lathe_lua_folders){FIXTURES, case_folder});
}

static void end(void) {
    lathe_lua_destroy(lua);
    case_end();
}

TestSuite(lua, .init = begin, .fini = end, .timeout = 60);

/* In a sandbox of its own: a file is read once a sandbox. */
static lathe_node run(const char *chunk) {
    const int64_t size = tp;
    lathe_lua_destroy(lua);
    lua = lathe_lua_create(case_arena, (lathe_lua_folders){FIXTURES, case_folder});
    lathe_lua_set_tp(lua, size);
    if (limit > 0)
        lathe_lua_limit(lua, limit);
    case_write("chunk.lua", chunk);
    return lathe_lua_run(lua, "chunk.lua", case_path("chunk.lua"));
}

static lathe_node succeed(const char *chunk) {
    lathe_node node = {0};
    if (LATHE_TRY(&case_diag)) {
        node = run(chunk);
        return node;
    }
    cr_assert_fail("%s", case_diag.message);
    return node;
}

/* The chunk must fail, with `wanted` in its message. */
static void expect(const char *chunk, const char *wanted) {
    if (LATHE_TRY(&case_diag)) {
        (void)run(chunk);
        cr_assert_fail("passed: %s", chunk);
    }
    cr_assert(strstr(case_diag.message, wanted), "no \"%s\" in: %s", wanted, case_diag.message);
}

Test(lua, values_become_nodes) {
    const lathe_node node = succeed("return { 1, 2.5, 'x', true, a = { b = -3 } }");
    cr_assert_eq(node.kind, LATHE_NODE_TABLE);
    const lathe_table *t = node.table;
    cr_assert_eq(t->item_count, 4);
    cr_assert_eq(t->items[0].integer, 1);
    cr_assert_eq(t->items[1].kind, LATHE_NODE_REAL);
    cr_assert_str_eq(t->items[2].string, "x");
    cr_assert(t->items[3].boolean);
    cr_assert_eq(lathe_tree_find(lathe_tree_find(t, "a")->table, "b")->integer, -3);
    cr_assert_null(lathe_tree_find(t, "none"));
}

Test(lua, constructors_remember_name_and_line) {
    const lathe_node node = succeed("\n\nlocal v = value 'in.s' {\n 'f32', rows }\nreturn v");
    cr_assert_str_eq(node.table->constructor, "value");
    cr_assert_str_eq(node.table->name, "in.s");
    cr_assert_str_eq(node.table->where.file, "chunk.lua");
    cr_assert_eq(node.table->where.line, 3);
    cr_assert_str_eq(node.table->items[1].string, "rows");
}

Test(lua, parts_have_two_names_and_prev_has_no_table) {
    const lathe_node node = succeed("return part 'a' 'gemm' { reads = { x = prev 'b' } }");
    cr_assert_str_eq(node.table->name, "a");
    cr_assert_str_eq(node.table->second, "gemm");
    const lathe_table *x = lathe_tree_find(lathe_tree_find(node.table, "reads")->table, "x")->table;
    cr_assert_str_eq(x->constructor, "prev");
    cr_assert_str_eq(x->name, "b");
}

Test(lua, plain_tables_take_the_line_of_the_constructor_around) {
    const lathe_node node = succeed("return model {\n groups = {} }");
    cr_assert_eq(lathe_tree_find(node.table, "groups")->table->where.line, 1);
}

Test(lua, nothing_of_the_outside_is_there) {
    const char *const names[] = {"os",          "io",           "require",         "load",
                                 "loadstring",  "dofile",       "debug",           "package",
                                 "loadfile",    "coroutine",    "pcall",           "xpcall",
                                 "print",       "setmetatable", "getmetatable",    "rawset",
                                 "rawget",      "_G",           "collectgarbage",  "warn",
                                 "string.dump", "math.random",  "math.randomseed", "table.move"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *dot = strchr(names[i], '.');
        if (dot)
            cr_expect_eq(succeed(lathe_arena_print(case_arena, "return %s", names[i])).kind,
                         LATHE_NODE_NIL, "%s is there", names[i]);
        else
            expect(lathe_arena_print(case_arena, "return %s", names[i]), "unknown name");
    }
}

Test(lua, the_kept_functions_work) {
    const lathe_node node = succeed(
        "assert(type(1) == 'number' and tonumber('7') == 7 and select('#', 1, 2) == 2)\n"
        "assert(math.max(1, 2) == 2 and ('abc'):upper() == 'ABC' and #table.pack(1, 2) == 2)\n"
        "assert(string.format('%d-%s', 3, 'x') == '3-x' and ('a,b'):match('(%w),') == 'a')\n"
        "assert(next({}) == nil and tostring(12) == '12' and ('ab'):rep(2) == 'abab')\n"
        "local n = 0 for i, v in ipairs({ 5, 6 }) do n = n + i * v end return n");
    cr_assert_eq(node.integer, 17);
}

Test(lua, pairs_and_next_visit_in_sorted_order) {
    const char *chunk =
        "local t, s, u, k = { z = 1, a = 2, [3] = 3, [1] = 4, m = 5, [2.5] = 6 }, '', ''\n"
        "for key, v in pairs(t) do s = s .. key .. '=' .. v .. ' ' end\n"
        "k = next(t) while k do u = u .. k .. ' ' k = next(t, k) end\n"
        "return s .. '|' .. u";
    cr_assert_str_eq(succeed(chunk).string, "1=4 2.5=6 3=3 a=2 m=5 z=1 |1 2.5 3 a m z ");
}

Test(lua, addresses_do_not_get_out) {
    expect("return tostring({})", "allowed: nil, booleans, numbers and strings");
    expect("return string.format('%s', {})", "allowed: nil, booleans, numbers and strings");
    expect("return string.format('%p', 'x')", "%p is not allowed");
}

Test(lua, bytecode_is_refused) {
    expect("\x1bLua junk", "attempt to load a binary chunk");
}

Test(lua, syntax_errors_name_the_line) {
    expect("local x = 1\nlocal = 2\n", "chunk.lua:2:");
}

Test(lua, runaway_loops_end) {
    expect("\nwhile true do end", "chunk.lua:2: more than 100000000 instructions");
    expect("local function f() return f() end\nf()", "more than 100000000 instructions");
}

Test(lua, runaway_recursion_ends) {
    expect("local function f() return 1 + f() end\nreturn f()",
           "chunk.lua:1: more than 64 MiB of memory");
}

Test(lua, runaway_memory_ends) {
    expect("local t = {}\nfor i = 1, 1e9 do t[i] = { i } end", "chunk.lua:2: more than 64 MiB");
    expect("return ('x'):rep(1 << 20):rep(1 << 10)", "more than 64 MiB of memory");
    expect("local s = 'x' while true do s = s .. s end", "more than 64 MiB of memory");
}

Test(lua, work_without_instructions_is_bounded) {
    expect("return (''):rep(1 << 62)", "at most 2^20 copies");
    expect("return (('x'):rep(300)):find('x')", "at most 256 bytes");
    expect("return ('x'):find('.*.*.*.*y')", "at most 3 of");
}

/* Ends in the line where it stands, soon after the limit. */
static void expect_slow(const char *chunk, const char *wanted) {
    const clock_t begin = clock();
    expect(chunk, wanted);
    cr_assert_lt((double)(clock() - begin) / CLOCKS_PER_SEC, 4);
}

Test(lua, costly_functions_are_bounded_by_time) {
    limit = 0.5; /* each loop on one line: either its head or its body meets the end of the time */
    expect_slow("local t = {}\nfor i = 1, 1e6 do t[i] = '' end\n"
                "for i = 1, 1e8 do table.concat(t) end",
                "chunk.lua:3: more than 0.5 seconds");
    expect_slow("local s = ('x'):rep(1 << 20)\nfor i = 1, 1e8 do s:reverse() end",
                "chunk.lua:2: more than 0.5 seconds");
    expect_slow("local t = {}\nfor i = 1, 1e6 do t[i] = i end\n"
                "for i = 1, 1e8 do table.sort(t) end",
                "chunk.lua:3: more than 0.5 seconds");
    expect_slow("local s = ('x'):rep(1 << 20)\nfor i = 1, 1e8 do local a = s .. i end",
                "chunk.lua:2: more than 0.5 seconds");
}

Test(lua, endless_tables_are_refused) {
    expect("local t = {} t.t = t return t", "nested more than 32 deep");
}

Test(lua, lists_have_no_gaps) {
    expect("return { [1] = 1, [5] = 2 }", "a list without gaps");
    expect("return { [true] = 1 }", "neither a name nor a position");
}

Test(lua, errors_without_words_have_a_place) {
    expect("\nerror({})", "chunk.lua:2: error: found table, allowed: a message");
    expect("local function f()\n error()\nend\nf()", "chunk.lua:2: error: found nil, allowed");
}

Test(lua, unknown_names_are_errors) {
    expect("return 1 +\n vlaue", "chunk.lua:2: unknown name 'vlaue'");
}

Test(lua, constructors_refuse_what_is_no_name_or_table) {
    expect("return value(3)", "value: found a number, allowed: a string");
    expect("return value ''", "value: the name is empty");
    expect("return value 'x' 'y'", "value \"x\": found a string, allowed: a table");
    expect("return model(4)", "model \"\": found a number, allowed: a table");
    expect("local t = {} local a = value 'x'(t) return value 'y'(t)", "constructed before");
}

Test(lua, include_finds_files_beside_the_layout_in_layouts_and_in_templates) {
    case_write("own.lua", "return 5");
    cr_assert_eq(succeed("return include 'own.lua'").integer, 5);
    cr_assert_str_eq(succeed("return include 'base.lua'").table->constructor, "layout");
    const lathe_node spec = succeed("return include 'fix/norm.lua'");
    cr_assert_str_eq(spec.table->constructor, "provider");
    cr_assert_str_eq(spec.table->where.file, "templates/fix/norm.lua");
}

Test(lua, include_stays_inside) {
    expect("return include '/etc/passwd'", "allowed: a path below layouts/ or templates/");
    expect("return include '../case.lua'", "allowed: a path below layouts/ or templates/");
    expect("return include 'fix/../../x.lua'", "allowed: a path below layouts/ or templates/");
    expect("return include 'none.lua'", "chunk.lua:1: include \"none.lua\": no such file");
    cr_assert_eq(symlink("/etc/passwd", case_path("link.lua")), 0);
    expect("return include 'link.lua'", "no such file in layouts/ or templates/");
}

Test(lua, include_in_a_circle_ends) {
    case_write("circle.lua", "return include 'circle.lua'");
    expect("return include 'circle.lua'", "more than 16 files deep");
}

Test(lua, chunks_do_not_share_globals) {
    case_write("sets.lua", "leaked = 1 return 0");
    expect("include 'sets.lua' return leaked", "unknown name 'leaked'");
}

Test(lua, errors_in_an_included_file_name_that_file) {
    case_write("bad.lua", "\n\nreturn nil + 1");
    expect("return include 'bad.lua'", "bad.lua:3: attempt to perform arithmetic");
}

Test(lua, functions_are_called_with_trees) {
    const lathe_node f = succeed("return function(c) return c.kN * 2 + (c.kLater and 1 or 0) end");
    cr_assert_eq(f.kind, LATHE_NODE_FUNCTION);
    cr_assert_eq(f.where.line, 1);
    lathe_table *c = lathe_tree_make(case_arena);
    c->strict = true;
    lathe_tree_set_node(case_arena, c, "kLater", (lathe_node){.kind = LATHE_NODE_NIL});
    lathe_tree_set_integer(case_arena, c, "kN", 21);
    const lathe_node argument = {.kind = LATHE_NODE_TABLE, .table = c};
    cr_assert_eq(lathe_lua_call(lua, &f, &argument, 1, "f").integer, 42);
}

Test(lua, strict_tables_refuse_unknown_fields) {
    const lathe_node f = succeed("return function(c)\n return c.kM end");
    lathe_table *c = lathe_tree_make(case_arena);
    c->strict = true;
    const lathe_node argument = {.kind = LATHE_NODE_TABLE, .table = c};
    if (LATHE_TRY(&case_diag)) {
        (void)lathe_lua_call(lua, &f, &argument, 1, "f");
        cr_assert_fail("passed");
    }
    cr_assert_str_eq(case_diag.message, "chunk.lua:2: nothing is called 'kM' here");
}

Test(lua, split_divides_and_collects_refusals) {
    tp = 3;
    const lathe_node node =
        succeed("return { split(12, 'a'),\n split(10, 'b'), split(24, 'c', 16) }");
    cr_assert_eq(node.table->items[0].integer, 4);
    size_t count;
    const lathe_refusal *refusals = lathe_lua_refusals(lua, &count);
    cr_assert_eq(count, 2);
    cr_assert_str_eq(refusals[0].reason, "b: 10 do not divide by 3 ranks");
    cr_assert_eq(refusals[0].where.line, 2);
    cr_assert_str_eq(refusals[1].reason, "c: 24 / 3 = 8 is no multiple of 16");
    expect("return split(0, 'a')", "allowed: a positive size");
    expect("return split(4, 'a', -1)", "allowed: a positive unit");
    tp = 0;
    expect("return split(4, 'a')", "no TP size is known here");
}

Test(lua, files_that_went_in_are_remembered_once) {
    (void)succeed("include 'base.lua' include 'base.lua' return 0");
    size_t count;
    const lathe_source *sources = lathe_lua_sources(lua, &count);
    cr_assert_eq(count, 2);
    cr_assert_str_eq(sources[0].shown, "chunk.lua");
    cr_assert_str_eq(sources[1].shown, "layouts/base.lua");
}
