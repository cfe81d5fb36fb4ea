/* SPDX-License-Identifier: Apache-2.0
 * What a model declares and never uses: a slip of the pen, or what its author forgot. */
#include "layout.h"

#include <string.h>

typedef struct {
    const lathe_model *model;
    bool *read, *written; /* by the model's data: some part does */
} usage;

static void note_ports(const usage *u, const lathe_port *ports, size_t count, bool *touched) {
    for (size_t i = 0; i < count; i++) {
        const lathe_datum *datum = lathe_model_find(u->model, ports[i].name);
        if (datum)
            touched[datum - u->model->data] = true;
    }
}

static void note_list(const usage *u, const lathe_part_list *list) {
    for (size_t i = 0; i < list->part_count; i++) {
        note_ports(u, list->parts[i]->reads, list->parts[i]->read_count, u->read);
        note_ports(u, list->parts[i]->writes, list->parts[i]->write_count, u->written);
    }
}

/* What is wrong with it, NULL where nothing is. */
static const char *unused(const lathe_datum *datum, bool read, bool written) {
    switch (datum->kind) {
    case LATHE_DATUM_VALUE:
        if (datum->input && !read)
            return "an input that no part reads";
        return read || written ? NULL : "no part reads or writes this value";
    case LATHE_DATUM_WEIGHT:
        return read || datum->is_held ? NULL : "no part reads this weight";
    case LATHE_DATUM_CACHE:
        return read || written ? NULL : "no part reads or writes this cache";
    case LATHE_DATUM_IMPLICIT:
        break;
    }
    return NULL;
}

static void check_kinds(lathe_arena *arena, const lathe_model *m) {
    for (size_t k = 0; k < m->kind_count; k++) {
        bool found = false;
        for (size_t l = 0; l < m->layer_count && !found; l++)
            found = m->layers[l] == k;
        if (!found)
            lathe_diag_fail(lathe_arena_diag(arena), m->kinds[k].where,
                            "kind \"%s\": no layer is of this kind", m->kinds[k].name);
    }
}

void lathe_layout_check_unused(lathe_arena *arena, const lathe_model *model) {
    check_kinds(arena, model);
    usage u = {.model = model};
    u.read = lathe_arena_alloc(arena, model->datum_count + 1, sizeof *u.read);
    u.written = lathe_arena_alloc(arena, model->datum_count + 1, sizeof *u.written);
    note_list(&u, &model->prepare);
    note_list(&u, &model->prologue);
    note_list(&u, &model->epilogue);
    note_list(&u, &model->probe.list);
    for (size_t k = 0; k < model->kind_count; k++)
        note_list(&u, &model->kinds[k]);
    for (size_t d = 0; d < model->datum_count; d++) {
        const lathe_datum *datum = &model->data[d];
        const char *why = unused(datum, u.read[d], u.written[d]);
        if (why)
            lathe_diag_fail(lathe_arena_diag(arena), datum->where, "\"%s\": %s", datum->name, why);
    }
}
