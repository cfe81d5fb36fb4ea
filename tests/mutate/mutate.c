/* SPDX-License-Identifier: Apache-2.0
 * Finds the call sites of barriers, waits, fences and stores to peers in kernels, and removes one.
 * mutate.sh drives it.
 * - mutate list FILE...: a line for each site: file, line, offset, prim, reason, with tabs between.
 *   The reason is what follows `keep:` in a comment on the call's lines or the line above.
 * - mutate apply FILE OFFSET: the file with that call replaced by one that takes the same
 *   arguments and does nothing, to standard output. So the file compiles whatever else is only used
 *   there, and line numbers stay.
 *
 * Comments and strings hold no sites. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What orders one thread's memory with another's. Arrivals are among them: a barrier without one
 * hangs; and stores to peers, whose data is their flag. */
static const char *const prims[] = {
    "block_sync",  "block_sync_named", "warp_sync",    "mbar_wait",    "mbar_init_fence",
    "mbar_arrive", "mbar_expect",      "async_fence",  "grid_wait",    "gpu_fence",
    "peer_fence",  "peer_store4",      "peer_store16", "cluster_sync", "cluster_wait",
    "copy_wait"};

typedef struct {
    char *bytes; /* ends with a zero byte */
    size_t size;
} source;

static source read_file(const char *path) {
    source s = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return s;
    size_t capacity = 1u << 16, got;
    s.bytes = malloc(capacity + 1);
    while (s.bytes && (got = fread(s.bytes + s.size, 1, capacity - s.size, file)) > 0) {
        s.size += got;
        if (s.size == capacity) {
            capacity *= 2;
            char *larger = realloc(s.bytes, capacity + 1);
            if (!larger)
                free(s.bytes);
            s.bytes = larger;
        }
    }
    fclose(file);
    if (s.bytes)
        s.bytes[s.size] = 0;
    return s;
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* End of the comment, string or character at `i`; `i` where none starts there. */
static size_t skip_quoted(const source *s, size_t i) {
    const char *b = s->bytes;
    if (b[i] == '/' && b[i + 1] == '/') {
        while (i < s->size && b[i] != '\n')
            i++;
    } else if (b[i] == '/' && b[i + 1] == '*') {
        const char *end = strstr(b + i + 2, "*/");
        return end ? (size_t)(end - b) + 2 : s->size;
    } else if (b[i] == '"' || b[i] == '\'') {
        const char quote = b[i++];
        while (i < s->size && b[i] != quote)
            i += b[i] == '\\' ? 2 : 1;
        return i < s->size ? i + 1 : s->size;
    }
    return i;
}

/* End of the bracketed text that opens at `i`. */
static size_t skip_brackets(const source *s, size_t i) {
    int depth = 0;
    while (i < s->size) {
        const size_t after = skip_quoted(s, i);
        if (after > i) {
            i = after;
            continue;
        }
        depth += s->bytes[i] == '(' ? 1 : s->bytes[i] == ')' ? -1 : 0;
        i++;
        if (depth == 0)
            break;
    }
    return i;
}

/* End of the call of a prim whose name starts at `i`; 0 where there is none. */
static size_t end_of_call(const source *s, size_t i, const char **prim) {
    const char *b = s->bytes;
    size_t end = i;
    while (is_word(b[end]))
        end++;
    size_t open = end;
    while (b[open] == ' ' || b[open] == '\n')
        open++;
    if (b[open] != '(')
        return 0;
    for (size_t p = 0; p < sizeof prims / sizeof *prims; p++) {
        if (strlen(prims[p]) == end - i && strncmp(prims[p], b + i, end - i) == 0) {
            *prim = prims[p];
            return skip_brackets(s, open);
        }
    }
    return 0;
}

/* What follows `keep:` in the line that holds `i`; its length, 0 for none. */
static size_t find_reason(const source *s, size_t i, const char **reason) {
    const char *b = s->bytes;
    while (i > 0 && b[i - 1] != '\n')
        i--;
    const size_t length = strcspn(b + i, "\n");
    const char *at = memmem(b + i, length, "keep:", 5);
    if (!at)
        return 0;
    *reason = at + 5 + strspn(at + 5, " ");
    const char *end = b + i + length;
    const char *close = memmem(*reason, (size_t)(end - *reason), "*/", 2);
    return (size_t)((close ? close : end) - *reason);
}

static void print_site(const char *path, const source *s, size_t i, size_t end, const char *prim) {
    size_t line = 1, start = i;
    for (size_t k = 0; k < i; k++)
        line += s->bytes[k] == '\n';
    while (start > 0 && s->bytes[start - 1] != '\n')
        start--;
    const char *reason = "";
    size_t length = find_reason(s, i, &reason);
    if (!length)
        length = find_reason(s, end, &reason);
    if (!length && start > 0)
        length = find_reason(s, start - 1, &reason);
    printf("%s\t%zu\t%zu\t%s\t%.*s\n", path, line, i, prim, (int)length, reason);
}

static int list_file(const char *path) {
    source s = read_file(path);
    if (!s.bytes) {
        fprintf(stderr, "mutate: cannot read %s\n", path);
        return 2;
    }
    for (size_t i = 0; i < s.size;) {
        const size_t after = skip_quoted(&s, i);
        if (after > i) {
            i = after;
        } else if (is_word(s.bytes[i])) {
            const char *prim = NULL;
            const size_t end = end_of_call(&s, i, &prim);
            if (end)
                print_site(path, &s, i, end, prim);
            while (is_word(s.bytes[i]))
                i++;
        } else {
            i++;
        }
    }
    free(s.bytes);
    return 0;
}

static int apply(const char *path, const char *offset_text) {
    source s = read_file(path);
    const size_t offset = strtoul(offset_text, NULL, 10);
    if (!s.bytes || offset > s.size) {
        fprintf(stderr, "mutate: %s has no such offset\n", path);
        free(s.bytes);
        return 2;
    }
    size_t arguments = offset;
    while (is_word(s.bytes[arguments]))
        arguments++;
    fwrite(s.bytes, 1, offset, stdout);
    fputs("[](auto &&...) {}", stdout);
    fwrite(s.bytes + arguments, 1, s.size - arguments, stdout);
    free(s.bytes);
    return ferror(stdout) ? 2 : 0;
}

int main(int count, char **arguments) {
    if (count >= 3 && strcmp(arguments[1], "list") == 0) {
        int status = 0;
        for (int i = 2; i < count && status == 0; i++)
            status = list_file(arguments[i]);
        return status;
    }
    if (count == 4 && strcmp(arguments[1], "apply") == 0)
        return apply(arguments[2], arguments[3]);
    fprintf(stderr, "usage: mutate list FILE... | mutate apply FILE OFFSET\n");
    return 2;
}
