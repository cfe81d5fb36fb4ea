/* SPDX-License-Identifier: Apache-2.0
 * Cutting checkpoint tensors: local shapes, joins, and why a size is refused. */
#include "codegen_case.h"
#include "shard.h"

static lathe_lua *lua;

static void begin(void) {
    case_begin();
    lua = lathe_lua_create(case_arena, (lathe_lua_folders){FIXTURES, FIXTURES "/layouts"});
}

static void end(void) {
    lathe_lua_destroy(lua);
    case_end();
}

TestSuite(shard, .init = begin, .fini = end);

static lathe_tensor tensor(int shard, int64_t groups) {
    return (lathe_tensor){
        .name = "t", .dtype = LATHE_BF16, .shape = {2, {48, 10}}, .shard = shard, .groups = groups};
}

Test(shard, a_replicated_tensor_is_whole) {
    const lathe_tensor t = tensor(-1, 1);
    const lathe_shape s = lathe_shard_local(lua, &t, 5);
    cr_assert_str_eq(lathe_shape_text(case_arena, &s), "[48, 10]");
}

Test(shard, an_axis_is_divided) {
    const lathe_tensor rows = tensor(0, 1), columns = tensor(1, 1), groups = tensor(0, 3);
    lathe_shape s = lathe_shard_local(lua, &rows, 4);
    cr_assert_str_eq(lathe_shape_text(case_arena, &s), "[12, 10]");
    s = lathe_shard_local(lua, &columns, 5);
    cr_assert_str_eq(lathe_shape_text(case_arena, &s), "[48, 2]");
    s = lathe_shard_local(lua, &groups, 4);
    cr_assert_str_eq(lathe_shape_text(case_arena, &s), "[12, 10]");
    size_t count;
    (void)lathe_lua_refusals(lua, &count);
    cr_assert_eq(count, 0);
}

Test(shard, each_group_must_divide) {
    const lathe_tensor t = tensor(0, 16);
    (void)lathe_shard_local(lua, &t, 2);
    size_t count;
    const lathe_refusal *refusals = lathe_lua_refusals(lua, &count);
    cr_assert_eq(count, 1);
    cr_assert_str_eq(refusals[0].reason, "tensor \"t\": 48 elements of axis 0 in 16 group(s) do "
                                         "not divide by 2 ranks");
}

Test(shard, groups_must_divide_the_axis) {
    const lathe_tensor t = tensor(1, 3);
    if (LATHE_TRY(&case_diag)) {
        (void)lathe_shard_local(lua, &t, 1);
        cr_assert_fail("passed");
    }
    cr_assert(strstr(case_diag.message, "no multiple of groups = 3"));
}

Test(shard, tensors_must_give_the_declared_shape) {
    REFUSED("weight \"up\" { \"bf16\", inner, H", "weight \"up\" { \"bf16\", inner + 1, H",
            "case.lua:49: weight \"up\"", "declared as [49, 64]", "give [48, 64]");
}

Test(shard, tensors_must_have_the_weights_dtype) {
    REFUSED("tensor \"l.{l}.up\" { \"bf16\"", "tensor \"l.{l}.up\" { \"f32\"",
            "case.lua:49:", "f32 [48, 64] on one rank", "the weight's dtype bf16");
}

Test(shard, tensors_join_along_an_axis) {
    ACCEPTED("from = { tensor \"l.{l}.up\" { \"bf16\", INNER, H, shard = 0 } }",
             "from = { tensor \"l.{l}.a\" { \"bf16\", 40, H, shard = 0 }, "
             "tensor \"l.{l}.b\" { \"bf16\", 8, H, shard = 0 } }");
    ACCEPTED("from = { tensor \"l.{l}.up\" { \"bf16\", INNER, H, shard = 0 } }",
             "axis = 1, from = { tensor \"l.{l}.a\" { \"bf16\", INNER, 60 }, "
             "tensor \"l.{l}.b\" { \"bf16\", INNER, 4 } }");
    REFUSED(
        "from = { tensor \"l.{l}.up\" { \"bf16\", INNER, H, shard = 0 } }",
        "from = { tensor \"l.{l}.a\" { \"bf16\", 40, H }, tensor \"l.{l}.b\" { \"bf16\", 8, 9 } }",
        "tensor \"l.{l}.b\"", "cannot be joined to [40, 64] along axis 0");
}

Test(shard, a_weight_needs_tensors) {
    REFUSED("from = { tensor \"l.{l}.gain\" { \"bf16\", H } }", "from = {}",
            "case.lua:47: weight \"gain\"", "field 'from': found none");
}

Test(shard, the_kind_of_values_is_one_of_those_known) {
    ACCEPTED("tensor \"l.{l}.gain\" { \"bf16\", H }",
             "tensor \"l.{l}.gain\" { \"bf16\", H, init = \"offset\" }");
    REFUSED("tensor \"l.{l}.gain\" { \"bf16\", H }",
            "tensor \"l.{l}.gain\" { \"bf16\", H, init = \"ofset\" }",
            "case.lua:47: tensor \"l.{l}.gain\": field 'init': found \"ofset\"",
            "allowed: weight embedding offset");
}

Test(shard, axis_and_shard_lie_in_range) {
    REFUSED("shard = 0", "shard = 2", "case.lua:49: tensor \"l.{l}.up\": field 'shard'", "found 2",
            "an integer from 0 to 1");
    REFUSED("weight \"gain\" { \"bf16\", H,", "weight \"gain\" { \"bf16\", H, axis = 1,",
            "case.lua:47:", "field 'axis'", "found 1");
}
