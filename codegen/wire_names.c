/* SPDX-License-Identifier: Apache-2.0
 * Names of kernels and buffers: short where that is clear, with the list's name or the form where
 * it is not. */
#include "wire.h"

#include <ctype.h>
#include <string.h>

static const char *clean(lathe_arena *arena, const char *name) {
    char *copy = lathe_arena_copy(arena, name, strlen(name));
    for (char *c = copy; *c; c++)
        if (!isalnum((unsigned char)*c))
            *c = '_';
    return copy;
}

/* The first part, from detail 1 on with its list, from 2 on with a number. Long names are cut: they
 * become those of files and entry points. */
static const char *kernel_name(lathe_arena *arena, const lathe_kernel *k, int detail) {
    const char *variant = *k->variant ? lathe_arena_print(arena, "_%s", k->variant) : "";
    const char *part = clean(arena, k->parts[0]), *list = clean(arena, k->list);
    const char *name = detail ? lathe_arena_print(arena, "%s_%s", part, list) : part;
    if (detail < 2)
        return lathe_arena_print(arena, "%.48s%s", name, variant);
    return lathe_arena_print(arena, "%.48s_%d%s", name, detail, variant);
}

static bool is_taken(const lathe_plan *plan, const char *const *names, size_t count,
                     const char *name) {
    for (size_t i = 0; i < count; i++)
        if (plan->kernels[i].used && strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Whether another kernel would have the same shortest name. */
static bool is_shared(const lathe_plan *plan, size_t kernel) {
    const lathe_kernel *k = &plan->kernels[kernel];
    for (size_t i = 0; i < plan->kernel_count; i++)
        if (i != kernel && plan->kernels[i].used &&
            strcmp(plan->kernels[i].parts[0], k->parts[0]) == 0 &&
            strcmp(plan->kernels[i].variant, k->variant) == 0)
            return true;
    return false;
}

static void name_kernels(lathe_plan *plan) {
    const char **names = lathe_arena_alloc(plan->arena, plan->kernel_count + 1, sizeof *names);
    for (size_t i = 0; i < plan->kernel_count; i++) {
        int detail = is_shared(plan, i) ? 1 : 0;
        do
            names[i] = kernel_name(plan->arena, &plan->kernels[i], detail++);
        while (is_taken(plan, names, i, names[i]));
    }
    for (size_t i = 0; i < plan->kernel_count; i++)
        plan->kernels[i].name = names[i];
}

static void name_buffers(lathe_plan *plan) {
    for (size_t i = 0; i < plan->buffer_count; i++) {
        lathe_buffer *buffer = &plan->buffers[i];
        if (!buffer->datum || buffer->form == LATHE_WHOLE)
            continue;
        for (size_t j = 0; j < plan->buffer_count; j++)
            if (j != i && plan->buffers[j].datum == buffer->datum && plan->buffers[j].used)
                buffer->name = lathe_arena_print(plan->arena, "%s.%s", buffer->datum->name,
                                                 lathe_form_name(buffer->form));
    }
}

void lathe_wire_name(lathe_plan *plan) {
    name_kernels(plan);
    name_buffers(plan);
}
