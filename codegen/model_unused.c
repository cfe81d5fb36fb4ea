/* SPDX-License-Identifier: Apache-2.0
 * What a model declares and never uses: a slip of the pen, or what its author forgot. */
#include "layout.h"

#include <string.h>

void lathe_layout_check_unused(lathe_arena *arena, const lathe_model *m) {
    for (size_t k = 0; k < m->kind_count; k++) {
        bool found = false;
        for (size_t l = 0; l < m->layer_count && !found; l++)
            found = m->layers[l] == k;
        if (!found)
            lathe_diag_fail(lathe_arena_diag(arena), m->kinds[k].where,
                            "kind \"%s\": no layer is of this kind", m->kinds[k].name);
    }
}
