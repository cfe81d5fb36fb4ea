/* SPDX-License-Identifier: Apache-2.0
 * lathe_unsupported: one clear sentence for everything that a host may want and a step does not do.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lathe.h"

#define TINY LATHE_SOURCE_DIR "/generated/muse_spark_tiny-tp2-host"

/* What lathe_unsupported says of it; the message does not outlive the next call. */
static const char *ask(const lathe_serving *serving) {
    static char text[1024];
    char message[1024];
    lathe_engine *e;
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = TINY;
    o.serving = serving;
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_OK, "%s", message);
    const char *reason = lathe_unsupported(e);
    snprintf(text, sizeof text, "%s", reason ? reason : "");
    if (reason)
        cr_assert_eq(lathe_build(e, NULL), LATHE_UNSUPPORTED);
    lathe_destroy(e);
    return text;
}

#define ALONE "tensor parallelism: the directory is for 2 ranks, this engine's group has 1"

typedef struct {
    lathe_serving serving;
    const char *said;
} question;

#define Q(field, value, words)                                                                     \
    { {.size = sizeof(lathe_serving), .field = (value)}, words }

static const question questions[] = {
    Q(architecture, "llama4", "architecture: found llama4, allowed: muse_spark"),
    Q(tensor_parallel, 4, "tensor parallelism: found 4, allowed: 2"),
    Q(data_parallel, 2, "data parallelism: found 2, allowed: 1; the step is one group of ranks"),
    Q(pipeline_parallel, 2,
      "pipeline parallelism: found 2, allowed: 1; the step is one group of "
      "ranks"),
    Q(context_parallel, 2,
      "context parallelism: found 2, allowed: 1; the step is one group of "
      "ranks"),
    Q(dense_layers, 3, "dense layers: found 3, allowed: 0"),
    Q(shared_experts, 1, "shared experts: found 1, allowed: 0"),
    Q(expert_groups, 8, "expert groups: found 8, allowed: 0"),
    Q(routing, "softmax", "routing method: found softmax, allowed: sigmoid_bias"),
    Q(route_scale, 2.5, "route scale: found 2.5, allowed: 1"),
    Q(rope_theta, 10000, "RoPE theta: found 10000, allowed: 500000"),
    Q(rope_type, "yarn", "RoPE type: found yarn, allowed: default"),
    Q(swiglu_limit, 7, "SwiGLU clamp: found 7, allowed: 0"),
    Q(swiglu_alpha, 1.702, "SwiGLU alpha: found 1.702, allowed: 1"),
    Q(swiglu_beta, 1, "SwiGLU beta: found 1, allowed: 0"),
    Q(norm_size, 128, "norm size: found 128, allowed: 256"),
    Q(attention_temperature, true,
      "attention temperature: queries are not scaled by their position"),
    Q(kv_sharing, true, "KV sharing: every layer reads its own cache"),
    Q(fp32_router_input, true, "router input: found fp32, allowed: bf16"),
    {{.size = sizeof(lathe_serving), .requests = 5, .q = 8},
     "batch: found 5 requests of q 8, allowed (requests x q): 1x1 1x8 4x8"},
    {{.size = sizeof(lathe_serving), .requests = 1, .q = 2},
     "batch: found 1 requests of q 2, allowed (requests x q): 1x1 1x8 4x8"},
    Q(requests, 1, "batch: found 1 requests of q 0, allowed: both or none"),
    Q(q, 8, "batch: found 0 requests of q 8, allowed: both or none"),
    Q(requests, -1, "requests: found -1, allowed: 0 or more"),
    Q(q, INT64_MIN, "q: found -9223372036854775808, allowed: 0 or more"),
    Q(max_context, -4, "context: found -4, allowed: 0 or more"),
    Q(kv_page_tokens, -16, "KV page size: found -16, allowed: 0 or more"),
    Q(tensor_parallel, -2, "tensor parallelism: found -2, allowed: 0 or more"),
    Q(data_parallel, -1, "data parallelism: found -1, allowed: 0 or more"),
    Q(dense_layers, -1, "dense layers: found -1, allowed: 0 or more"),
    Q(norm_size, -1, "norm size: found -1, allowed: 0 or more"),
    Q(rope_theta, NAN, "RoPE theta: found nan, allowed: a finite number"),
    Q(swiglu_beta, INFINITY, "SwiGLU beta: found inf, allowed: a finite number"),
    Q(route_scale, -1, "route scale: found -1, allowed: 1"),
    Q(max_context, 4096, "context: found 4096 tokens, allowed: at most 128"),
    Q(kv_dtype, "fp8", "KV dtype: found fp8, allowed: bf16"),
    Q(kv_dtype, "nvfp4", "KV dtype: found nvfp4, allowed: bf16"),
    Q(kv_layout, "[2, pages, page_tokens, kv_heads, head_dim]",
      "KV layout: found [2, pages, page_tokens, kv_heads, head_dim], allowed: [pages, kv_heads, "
      "page_tokens, 2 * head_dim]"),
    Q(kv_page_tokens, 32, "KV page size: found 32 tokens, allowed: 16"),
    Q(sequence_parallel, true,
      "sequence parallelism: every rank has all rows between the exchanges"),
    Q(moe_backend, "deepep",
      "expert back end: found deepep, allowed: none; the step moves the "
      "experts' rows itself"),
    Q(expert_load_balancing, true, "expert load balancing: experts stay where they are"),
    Q(routed_expert_capture, true,
      "routed experts: the ids of the chosen experts are no output of the step"),
    Q(lora, true, "LoRA: adapters are not applied"),
    Q(unreduced_output, true, "output: it is summed over the ranks, never a rank's part"),
};

Test(serving, everything_that_is_not_done_is_one_sentence) {
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; ++i)
        cr_expect_str_eq(ask(&questions[i].serving), questions[i].said);
}

/* Alone, so that what is asked for is not the reason. */
Test(serving, what_is_done_is_no_reason) {
    const lathe_serving all = {.size = sizeof all,
                               .architecture = "muse_spark",
                               .routing = "sigmoid_bias",
                               .route_scale = 1,
                               .rope_theta = 500000,
                               .rope_type = "default",
                               .swiglu_alpha = 1,
                               .norm_size = 256,
                               .requests = 3,
                               .q = 8,
                               .max_context = 128,
                               .kv_dtype = "bf16",
                               .kv_layout = "[pages, kv_heads, page_tokens, 2 * head_dim]",
                               .kv_page_tokens = 16,
                               .tensor_parallel = 2,
                               .data_parallel = 1,
                               .pipeline_parallel = 1,
                               .context_parallel = 1};
    const lathe_serving nothing = {.size = sizeof nothing};
    cr_assert_str_eq(ask(&all), ALONE);
    cr_assert_str_eq(ask(&nothing), ALONE);
    cr_assert_str_eq(ask(NULL), ALONE);
}

Test(serving, a_struct_of_another_size_is_refused) {
    const lathe_serving odd = {.size = 8};
    cr_assert(strncmp(ask(&odd), "serving: found 8 bytes, allowed: ", 33) == 0);
}
