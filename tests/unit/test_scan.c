/* SPDX-License-Identifier: Apache-2.0
 * The libclang checks on a small provider and its generated file: silent on the sound ones, and one
 * mutation or more of each rule fails with file and line. */
#include <criterion/criterion.h>

#ifdef LATHE_SCAN

#include "scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char sound_helper[] = "#ifndef HELPER_CUH\n"
                                   "#define HELPER_CUH\n"
                                   "#include \"prims.cuh\"\n"
                                   "template <class Config, int kExtra>\n"
                                   "struct Shape {\n"
                                   "    static constexpr int kTotal = Config::kRows * kExtra;\n"
                                   "};\n"
                                   "template <class C>\n"
                                   "__device__ void begin(const float *) {\n"
                                   "    grid_wait();\n"
                                   "}\n"
                                   "template <class C>\n"
                                   "__device__ int unused() { return C::kElsewhere; }\n"
                                   "#endif\n";

static const char sound_template[] =
    "#ifndef SCALE_CUH\n"
    "#define SCALE_CUH\n"
    "#include \"demo/helper.cuh\"\n"
    "template <class C>\n"
    "__device__ void scale(const bf16 *x, const float *gain, float *y, u32 *counters) {\n"
    "    using S = Shape<C, 2>;\n"
    "    const int i = static_cast<int>(thread_id());\n"
    "    grid_trigger();\n"
    "    begin<C>(gain);\n"
    "    if constexpr (C::kFlag == 1)\n"
    "        y[i] = bf16_to_float(x[i]) * static_cast<float>(C::kEps) + S::kTotal;\n"
    "    gpu_atomic_add(counters, 1);\n"
    "}\n"
    "#endif\n";

static const char sound_output[] =
    "// GENERATED\n"
    "#include \"demo/scale.cuh\"\n"
    "\n"
    "struct Scale {                             // layouts/demo.lua:3\n"
    "    static constexpr int kRows = 8;        // rows\n"
    "    static constexpr int kFlag = -1;       // option\n"
    "    static constexpr float kEps = 1e-05;   // eps\n"
    "};\n"
    "extern \"C\" __global__ void __launch_bounds__(128, 2)\n"
    "demo_scale(const bf16 *x, const float *gain, float *y, u32 *counters) {\n"
    "    scale<Scale>(x, gain, y, counters);\n"
    "}\n";

static const lathe_scan_arg args[] = {{"x", "bf16", true, 21},
                                      {"gain", "float", true, 22},
                                      {"y", "float", false, 23},
                                      {"counters", "u32", false, 24}};
static const lathe_scan_constant constants[] = {
    {"kRows", LATHE_SCAN_INT, 11}, {"kFlag", LATHE_SCAN_INT, 12}, {"kEps", LATHE_SCAN_FLOAT, 13}};
static const lathe_scan_value values[] = {{"kEps", LATHE_SCAN_FLOAT, 0, 1e-5},
                                          {"kFlag", LATHE_SCAN_INT, -1, 0},
                                          {"kRows", LATHE_SCAN_INT, 8, 0}};

/* Everything a case may change. */
typedef struct {
    char helper[4096], code[4096], output[4096];
    lathe_scan_provider providers[2];
    lathe_scan_kernel kernel;
    lathe_scan_file file;
    lathe_scan_early early;
    char found[8192]; /* a line for each finding */
    int count;
} fixture;

static void collect(void *context, const char *file, int line, const char *message) {
    fixture *f = context;
    const size_t used = strlen(f->found);
    snprintf(f->found + used, sizeof f->found - used, "%s:%d: %s\n", file, line, message);
}

static fixture *start(void) {
    fixture *f = calloc(1, sizeof *f);
    cr_assert(f);
    snprintf(f->helper, sizeof f->helper, "%s", sound_helper);
    snprintf(f->code, sizeof f->code, "%s", sound_template);
    snprintf(f->output, sizeof f->output, "%s", sound_output);
    f->providers[0] = (lathe_scan_provider){"demo/scale",
                                            "templates/demo/scale.lua",
                                            7,
                                            "demo/scale.cuh",
                                            "scale",
                                            args,
                                            4,
                                            constants,
                                            3,
                                            true,
                                            true};
    f->providers[1] = f->providers[0];
    f->kernel = (lathe_scan_kernel){"demo_scale", "Scale", 0, values, 3, args, 4, 128, 2, 1};
    f->file = (lathe_scan_file){"demo_scale.cu", f->output, &f->kernel, 1};
    f->early = (lathe_scan_early){0, 1, "layouts/demo.lua", 31};
    return f;
}

static void write_file(const char *root, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    cr_assert(file, "%s", path);
    cr_assert(fputs(text, file) >= 0);
    cr_assert_eq(fclose(file), 0);
}

static const char *const folders[] = {"demo", "prims", "prims/host"};
static const char *const files[] = {"demo/helper.cuh", "demo/scale.cuh", "prims/host/prims.cuh"};

static void write_templates(const fixture *f, const char *root) {
    char path[512];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        cr_assert_eq(mkdir(path, 0700), 0);
    }
    write_file(root, files[0], f->helper);
    write_file(root, files[1], f->code);
    write_file(root, files[2],
               "#include \"" LATHE_SOURCE_DIR "/templates/prims/host/prims.cuh\"\n");
}

static void remove_templates(const char *root) {
    char path[512];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        unlink(path);
    }
    for (size_t i = 3; i-- > 0;) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        rmdir(path);
    }
    rmdir(root);
}

static void scan(fixture *f) {
    char root[] = "/tmp/lathe-scan-XXXXXX";
    cr_assert(mkdtemp(root));
    write_templates(f, root);
    const lathe_scan_input input = {root, "templates", f->providers, 1, &f->file, 1, &f->early, 1,
                                    2};
    f->count = lathe_scan(&input, collect, f);
    remove_templates(root);
}

/* Replaces the first `from` in `text`. */
static void replace(char *text, size_t size, const char *from, const char *to) {
    char *at = strstr(text, from);
    cr_assert(at, "the fixture lacks `%s`", from);
    const size_t tail = strlen(at + strlen(from)) + 1;
    cr_assert(strlen(text) + strlen(to) < size);
    memmove(at + strlen(to), at + strlen(from), tail);
    memcpy(at, to, strlen(to));
}

/* Exactly one finding, at `place`, which says `words`. */
static void expect(fixture *f, const char *place, const char *words) {
    scan(f);
    cr_expect_eq(f->count, 1, "%d findings instead of one at %s:\n%s", f->count, place, f->found);
    cr_expect_eq(strncmp(f->found, place, strlen(place)), 0, "wanted %s:\n%s", place, f->found);
    cr_expect(f->found[strlen(place)] == ':' && strstr(f->found, words), "wanted `%s` at %s:\n%s",
              words, place, f->found);
    free(f);
}

#define CODE "templates/demo/scale.cuh"
#define HELPER "templates/demo/helper.cuh"
#define SPEC "templates/demo/scale.lua"
#define OUTPUT "demo_scale.cu"

typedef struct {
    const char *from, *to, *place, *words;
} mutation;

static void mutate_template(const mutation *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        fixture *f = start();
        const bool helper = !strstr(f->code, list[i].from);
        replace(helper ? f->helper : f->code, sizeof f->code, list[i].from, list[i].to);
        expect(f, list[i].place, list[i].words);
    }
}

static void mutate_output(const mutation *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        fixture *f = start();
        replace(f->output, sizeof f->output, list[i].from, list[i].to);
        expect(f, list[i].place, list[i].words);
    }
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

Test(scan, sound_files_pass) {
    fixture *f = start();
    scan(f);
    cr_expect_eq(f->count, 0, "%s", f->found);
    cr_expect(lathe_scan_available());
    free(f);
}

Test(scan, arguments_equal_the_spec) {
    static const mutation list[] = {
        {"u32 *counters) {", "u32 *counts) {\n    u32 *const counters = counts;", CODE ":5",
         "`u32 *counts`; the spec's argument is `u32 *counters`"},
        {"float *y, u32", "double *y, u32", CODE ":5", "the spec's argument is `float *y`"},
        {"const bf16 *x", "bf16 *x", CODE ":5",
         "`bf16 *x`; the spec's argument is `const bf16 *x`"},
        {", u32 *counters", ", u32 *counters, int *more", CODE ":5", "only 4 arguments"},
        {"void scale(", "void scales(", CODE ":1", "no function template scale"},
    };
    mutate_template(list, COUNT(list));
}

Test(scan, swapped_arguments_are_two_findings) {
    fixture *f = start();
    replace(f->code, sizeof f->code, "const float *gain, float *y", "float *y, const float *gain");
    scan(f);
    cr_expect_eq(f->count, 2, "%s", f->found);
    cr_expect(strstr(f->found, CODE ":5: parameter 2 of scale is `float *y`"), "%s", f->found);
    cr_expect(strstr(f->found, CODE ":5: parameter 3 of scale is `const float *gain`"), "%s",
              f->found);
    free(f);
}

Test(scan, missing_parameter) {
    fixture *f = start();
    replace(f->code, sizeof f->code, ", u32 *counters", "");
    replace(f->code, sizeof f->code, "    gpu_atomic_add(counters, 1);\n", "");
    expect(f, CODE ":5", "argument 4, `counters`, is missing");
}

Test(scan, constants_read_equal_those_declared) {
    static const mutation list[] = {
        {"C::kFlag == 1", "true", SPEC ":12", "kFlag is declared but never read"},
        {"C::kFlag == 1", "C::kFlag == C::kOther", CODE ":10", "kOther is read but not declared"},
        {"Config::kRows", "Config::kLines", HELPER ":6", "kLines is read but not declared"},
        {"Shape<C, 2>", "Shape<Fixed, 2>", SPEC ":11", "kRows is declared but never read"},
    };
    for (size_t i = 0; i < COUNT(list); i++) {
        fixture *f = start();
        const bool helper = !strstr(f->code, list[i].from);
        replace(helper ? f->helper : f->code, sizeof f->code, list[i].from, list[i].to);
        if (i == 2) /* the kernel itself reads what its helper no longer does */
            replace(f->code, sizeof f->code, "C::kFlag == 1", "C::kFlag == C::kRows");
        replace(f->helper, sizeof f->helper, "#endif",
                "struct Fixed { static constexpr int kRows = 1; };\n#endif");
        expect(f, list[i].place, list[i].words);
    }
}

Test(scan, config_structs_hold_the_plan) {
    static const mutation list[] = {
        {"kRows = 8", "kRows = 9", OUTPUT ":5", "Scale::kRows is int 9; the plan says int 8"},
        {"kFlag = -1", "kFlag = 1", OUTPUT ":6", "Scale::kFlag is int 1"},
        {"kEps = 1e-05", "kEps = 1.1e-05", OUTPUT ":7", "Scale::kEps is float 1.1e-05"},
        {"float kEps = 1e-05", "int kEps = 1", OUTPUT ":7", "Scale::kEps is int 1"},
        {"int kRows = 8", "float kRows = 8", OUTPUT ":5", "Scale::kRows is float 8"},
        {"    static constexpr int kRows = 8;", "", OUTPUT ":4", "Scale::kRows is missing"},
        {"int kFlag = -1;", "int kFlag = -1; static constexpr int kMore = 1;", OUTPUT ":6",
         "Scale::kMore is not in the plan"},
        {"int kFlag = -1;", "int kFlag = -1; static constexpr int kFlag = -1;", OUTPUT ":6",
         "Scale::kFlag stands twice"},
    };
    mutate_output(list, COUNT(list));
}

Test(scan, entry_points_equal_step_json) {
    static const mutation list[] = {
        {"float *y, u32 *counters) {", "float *z, u32 *counters) {", OUTPUT ":10", "`float *z`"},
        {"const bf16 *x", "bf16 *x", OUTPUT ":10", "parameter 1 of demo_scale is `bf16 *x`"},
        {"(x, gain, y, counters);", "(x, gain, y);", OUTPUT ":11", "passes 3 arguments, must be 4"},
        {"scale<Scale>(", "scales<Scale>(", OUTPUT ":11", "a call of `scales`, must be `scale`"},
        {"scale<Scale>(", "scale<Other>(", OUTPUT ":11", "config struct `Other`, must be `Scale`"},
        {"(128, 2)", "(256, 2)", OUTPUT ":9", "launch bounds of demo_scale are (256, 2)"},
        {"(128, 2)", "(128)", OUTPUT ":9", "step.json says (128, 2)"},
        {"(128, 2)", "(Scale::kRows, 2)", OUTPUT ":9", "are (8, 2)"},
        {"demo_scale(const", "demo_scales(const", OUTPUT ":1", "entry point demo_scale is missing"},
        {"demo/scale.cuh", "demo/other.cuh", OUTPUT ":2", "#include \"demo/other.cuh\""},
    };
    for (size_t i = 0; i < COUNT(list); i++) {
        fixture *f = start();
        replace(f->output, sizeof f->output, list[i].from, list[i].to);
        scan(f);
        cr_expect_geq(f->count, 1, "%s", list[i].to);
        char line[256];
        snprintf(line, sizeof line, "%s: ", list[i].place);
        cr_expect(strstr(f->found, line) && strstr(f->found, list[i].words), "wanted %s `%s`:\n%s",
                  line, list[i].words, f->found);
        free(f);
    }
}

Test(scan, swapped_call_arguments) {
    fixture *f = start();
    replace(f->output, sizeof f->output, "(x, gain, y, counters);", "(x, y, gain, counters);");
    scan(f);
    cr_expect_eq(f->count, 2, "%s", f->found);
    cr_expect(strstr(f->found,
                     OUTPUT ":11: demo_scale has as argument 2 of its call `y`, must be `gain`"),
              "%s", f->found);
    free(f);
}

Test(scan, early_kernels_wait) {
    static const mutation list[] = {
        {"    begin<C>(gain);\n", "", CODE ":5", "never calls grid_wait()"},
        {"    begin<C>(gain);\n", "    if (i == 0)\n        begin<C>(gain);\n", HELPER ":10",
         "under control flow"},
        {"    begin<C>(gain);\n", "    i == 0 ? grid_wait() : grid_trigger();\n", CODE ":9",
         "under control flow"},
        {"    begin<C>(gain);\n",
         "    for (int j = 0; j < i; j++) {\n        grid_wait();\n    }\n", CODE ":10",
         "under control flow"},
        {"    grid_wait();\n", "    if (thread_id() == 0)\n        grid_wait();\n", HELPER ":11",
         "under control flow"},
        {"    begin<C>(gain);\n",
         "    gpu_fence();\n    gpu_store(counters, 0u);\n    begin<C>(gain);\n", CODE ":10",
         "gpu_store before the grid_wait() of scale"},
        {"    grid_wait();\n", "    if (thread_id() > 5)\n        return;\n    grid_wait();\n",
         HELPER ":11", "may return before its grid_wait()"},
        {"    begin<C>(gain);\n", "    if (i > 3)\n        return;\n    begin<C>(gain);\n",
         CODE ":10", "may return before its grid_wait()"},
    };
    mutate_template(list, COUNT(list));
}

Test(scan, triggers_are_declared) {
    static const mutation list[] = {
        {"    grid_trigger();\n", "", CODE ":5", "never calls grid_trigger()"},
    };
    mutate_template(list, COUNT(list));
}

Test(scan, waits_and_triggers_need_a_declaration) {
    fixture *f = start();
    f->providers[0].triggers = false;
    expect(f, CODE ":8", "grid_trigger() in a kernel that its spec does not declare `triggers`");
    f = start();
    f->providers[0].early = false;
    f->early = (lathe_scan_early){0};
    scan(f);
    cr_expect(
        strstr(f->found, HELPER ":10: grid_wait() in a kernel that its spec does not declare"),
        "%s", f->found);
    free(f);
}

Test(scan, early_launches_follow_a_trigger) {
    fixture *f = start();
    f->early.predecessor = SIZE_MAX;
    expect(f, "layouts/demo.lua:31", "nothing precedes it");
    f = start();
    f->providers[1].triggers = false;
    f->providers[1].name = "demo/silent";
    expect(f, "layouts/demo.lua:31", "launched early behind demo/silent, which does not trigger");
}

Test(scan, output_holds_no_logic) {
    static const mutation list[] = {
        {"kRows = 8", "kRows = 4 + 4", OUTPUT ":5", "found `+`, allowed is ;"},
        {"kRows = 8", "kRows = 0x8", OUTPUT ":5", "is int 0x8; the plan says int 8"},
        {"(128, 2)", "(64 * 2, 2)", OUTPUT ":9", "found `*`"},
        {"    scale<Scale>", "    if (x)\n        scale<Scale>", OUTPUT ":11", "found `(`"},
        {"(x, gain, y, counters);", "(x + 8, gain, y, counters);", OUTPUT ":11", "found `+`"},
        {"counters);\n", "counters);\n    scale<Scale>(x, gain, y, counters);\n", OUTPUT ":12",
         "found `scale`"},
        {"extern \"C\"", "static int lines(int n) { return n; }\nextern \"C\"", OUTPUT ":9",
         "found `static`"},
        {"extern \"C\"", "#define SCALE 1\nextern \"C\"", OUTPUT ":9", "found `define`"},
    };
    mutate_output(list, COUNT(list));
}

Test(scan, discipline) {
    static const mutation list[] = {
        {"    grid_trigger();\n", "    grid_trigger();\n    asm(\"\");\n", CODE ":9", "`asm`"},
        {"#include \"prims.cuh\"\n", "#include \"prims.cuh\"\n#ifdef HOST\n#endif\n", HELPER ":4",
         "#ifdef in a template"},
        {"    grid_trigger();\n", "    grid_trigger();\n    volatile int v = 0;\n", CODE ":9",
         "`volatile`"},
        {"    grid_trigger();\n", "    grid_trigger();\n    auto v = [i]() {};\n", CODE ":9",
         "a lambda"},
    };
    mutate_template(list, COUNT(list));
}

Test(scan, built_ins_of_cuda) {
    static const char *const words[] = {"threadIdx.x", "__syncthreads()", "__shared__ int v[4]",
                                        "atomicAdd(counters, 1u)", "__threadfence()"};
    for (size_t i = 0; i < COUNT(words); i++) {
        fixture *f = start();
        char line[128];
        snprintf(line, sizeof line, "    grid_trigger();\n    %s;\n", words[i]);
        replace(f->code, sizeof f->code, "    grid_trigger();\n", line);
        scan(f);
        cr_expect(strstr(f->found, CODE ":9: `") && strstr(f->found, "prims only"), "%s:\n%s",
                  words[i], f->found);
        free(f);
    }
}

Test(scan, what_does_not_parse_is_located) {
    static const mutation list[] = {
        {"    grid_trigger();\n", "    grid_triggers();\n", CODE ":8", "does not parse as C++17"},
        {"\"prims.cuh\"", "\"missing.cuh\"", HELPER ":3", "'missing.cuh' file not found"},
    };
    mutate_template(list, COUNT(list));
}

Test(scan, missing_template) {
    fixture *f = start();
    f->providers[0].file = "demo/absent.cuh";
    replace(f->output, sizeof f->output, "demo/scale.cuh", "demo/absent.cuh");
    scan(f);
    cr_expect_geq(f->count, 1);
    cr_expect(strstr(f->found, "templates/demo/absent.cuh:1: "), "%s", f->found);
    free(f);
}

#else

#include "scan.h"

static void collect(void *context, const char *file, int line, const char *message) {
    (void)file, (void)line;
    *(const char **)context = message;
}

Test(scan, left_out_of_this_build) {
    const char *message = "";
    const lathe_scan_input input = {.shown = "templates"};
    cr_expect_eq(lathe_scan(&input, collect, &message), -1);
    cr_expect(strstr(message, "LATHE_SCAN=OFF"));
    cr_expect_not(lathe_scan_available());
}

#endif
