/* SPDX-License-Identifier: Apache-2.0
 * Owns: the index of names while step.json is read. */
#include "step_read.h"

#define XXH_INLINE_ALL
#include <string.h>
#include <xxhash.h>

bool lathe_step_index_create(lathe_json *j, int count, lathe_step_index *index) {
    size_t slots = 16;
    while (slots < (size_t)count * 2)
        slots *= 2;
    index->names = lathe_json_alloc(j, (int)slots, sizeof *index->names);
    index->numbers = lathe_json_alloc(j, (int)slots, sizeof *index->numbers);
    index->mask = slots - 1;
    return index->names && index->numbers;
}

/* The slot that holds `name`, or the empty one where it belongs. */
static size_t find_slot(const lathe_step_index *index, const char *name) {
    size_t slot = XXH3_64bits(name, strlen(name)) & index->mask;
    while (index->names[slot] && strcmp(index->names[slot], name) != 0)
        slot = (slot + 1) & index->mask;
    return slot;
}

bool lathe_step_index_add(lathe_json *j, lathe_step_index *index, const char *name, int number) {
    const size_t slot = find_slot(index, name);
    if (index->names[slot])
        return lathe_json_fail_at(j, "name", "found \"%.60s\" a second time (first at [%d])", name,
                                  index->numbers[slot]);
    index->names[slot] = name;
    index->numbers[slot] = number;
    return true;
}

int lathe_step_index_find(const lathe_step_index *index, const char *name) {
    if (!index->names)
        return -1;
    const size_t slot = find_slot(index, name);
    return index->names[slot] ? index->numbers[slot] : -1;
}
