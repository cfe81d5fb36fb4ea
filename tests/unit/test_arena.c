/* SPDX-License-Identifier: Apache-2.0
 * The arena: zeroed, aligned, growing, failing with a message. */
#include "arena.h"

#include <criterion/criterion.h>
#include <stdint.h>

static lathe_diag diag;

Test(arena, memory_is_zeroed_and_aligned) {
    lathe_arena *arena = lathe_arena_create(&diag);
    for (size_t size = 1; size < 200000; size = size * 3 + 1) {
        unsigned char *p = lathe_arena_alloc(arena, size, 1);
        cr_assert_eq((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++)
            cr_assert_eq(p[i], 0);
        memset(p, 0xff, size);
    }
    lathe_arena_destroy(arena);
}

Test(arena, grow_keeps_elements) {
    lathe_arena *arena = lathe_arena_create(&diag);
    int *numbers = NULL;
    for (int i = 0; i < 1000; i++) {
        numbers = lathe_arena_grow(arena, numbers, (size_t)i, sizeof *numbers);
        numbers[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(numbers[i], i);
    lathe_arena_destroy(arena);
}

Test(arena, impossible_size_fails_with_message) {
    lathe_arena *arena = lathe_arena_create(&diag);
    if (LATHE_TRY(&diag)) {
        (void)lathe_arena_alloc(arena, SIZE_MAX / 2, 8);
        cr_assert_fail("the allocation returned");
    }
    cr_assert(strstr(diag.message, "no memory"));
    lathe_arena_destroy(arena);
}

Test(arena, print_and_copy) {
    lathe_arena *arena = lathe_arena_create(&diag);
    cr_assert_str_eq(lathe_arena_print(arena, "%s-%d", "a", 7), "a-7");
    cr_assert_str_eq(lathe_arena_copy(arena, "abcdef", 3), "abc");
    lathe_arena_destroy(arena);
}
