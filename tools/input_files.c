/* SPDX-License-Identifier: Apache-2.0
 * Gives every file of --inputs its place: walks the launches as the check will, and notes under
 * which name each would look for a file. */
#include "input_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check_state.h"
#include "step_files.h"

#define LISTED 40 /* names in a message */

typedef struct {
    char *name; /* without .npy */
    int rank;   /* whose folder it lies in; -1: beside those */
    bool placed;
    bool value; /* within the step */
} input_file;

typedef struct {
    const lathe_input_files *o;
    lathe_check_state c;
    bool step_inputs; /* tokens.npy is there */
    input_file *files;
    int file_count;
    char **names; /* of values that a file may replace */
    int name_count;
} walk;

__attribute__((format(printf, 3, 4))) static lathe_status refuse(walk *w, lathe_status status,
                                                                 const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(w->c.message, w->c.size, format, list);
    va_end(list);
    return status;
}

lathe_status lathe_input_files_open(const char *folder, char *message, size_t size) {
    struct stat st;
    const char *what = NULL;
    if (stat(folder, &st) != 0)
        what = strerror(errno);
    else if (!S_ISDIR(st.st_mode))
        what = "it is a file";
    if (!what)
        return LATHE_OK;
    snprintf(message, size, "--inputs %s: %s; allowed: a folder of .npy files", folder, what);
    return LATHE_INVALID;
}

/* Whether it is named like a folder of a rank, but of none of `ranks`; one rank has no folder. */
static bool is_of_no_rank(const char *name, int ranks) {
    char own[16];
    if (name[0] != 'r' || !name[1] || name[1 + strspn(name + 1, "0123456789")])
        return false;
    for (int rank = 0; ranks > 1 && rank < ranks; ++rank) {
        snprintf(own, sizeof own, "r%d", rank);
        if (strcmp(name, own) == 0)
            return false;
    }
    return true;
}

lathe_status lathe_input_files_check_ranks(const char *folder, int ranks, char *message,
                                           size_t size) {
    char path[4096], allowed[64] = "none, the step has one rank";
    struct stat st;
    lathe_status status = LATHE_OK;
    DIR *d = opendir(folder);
    if (ranks > 1)
        snprintf(allowed, sizeof allowed, "r0 to r%d, the step has %d ranks", ranks - 1, ranks);
    for (const struct dirent *e; d && status == LATHE_OK && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!is_of_no_rank(e->d_name, ranks) || stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
            continue;
        snprintf(message, size, "--inputs %s: folders of ranks: found %s; allowed: %s", folder,
                 e->d_name, allowed);
        status = LATHE_INVALID;
    }
    if (d)
        closedir(d);
    return status;
}

/* ---- shapes ---- */

/* Sizes from each dimension on: [4, 2, 3] gives 24, 6, 3. Dimensions of 1 do not count. */
static int list_suffixes(const int64_t *shape, int rank, int64_t *suffixes) {
    int count = 0;
    int64_t product = 1;
    for (int d = rank - 1; d >= 0; --d) {
        product *= shape[d];
        if (shape[d] != 1)
            suffixes[count++] = product;
    }
    return count;
}

static bool is_among(int64_t n, const int64_t *list, int count) {
    for (int i = 0; i < count; ++i)
        if (list[i] == n)
            return true;
    return false;
}

bool lathe_input_files_fit(const int64_t *found, int found_rank, const int64_t *wanted,
                           int wanted_rank) {
    int64_t a[LATHE_NPY_RANK + 1] = {1};
    int64_t b[LATHE_NPY_RANK + 1] = {1};
    if (found_rank > LATHE_NPY_RANK || wanted_rank > LATHE_NPY_RANK)
        return false;
    const int na = list_suffixes(found, found_rank, a);
    const int nb = list_suffixes(wanted, wanted_rank, b);
    const int64_t total_a = na ? a[na - 1] : 1;
    const int64_t total_b = nb ? b[nb - 1] : 1;
    if (total_a != total_b)
        return false;
    const bool fewer = na <= nb;
    for (int i = 0; i < (fewer ? na : nb); ++i)
        if (!is_among(fewer ? a[i] : b[i], fewer ? b : a, fewer ? nb : na))
            return false;
    if (nb == 0 || wanted[0] <= 1)
        return true;
    return (na > 1 ? a[na - 2] : 1) == total_b / wanted[0];
}

static void format_shape(const int64_t *shape, int rank, char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < rank && n < size; ++d)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (n < size)
        snprintf(text + n, size - n, "]");
}

/* ---- the folder ---- */

static lathe_status add_file(walk *w, const char *name, int rank) {
    input_file *more = realloc(w->files, ((size_t)w->file_count + 1) * sizeof *more);
    if (!more)
        return refuse(w, LATHE_NO_MEMORY, "no memory");
    w->files = more;
    char *copy = strndup(name, strlen(name) - 4);
    if (!copy)
        return refuse(w, LATHE_NO_MEMORY, "no memory");
    w->files[w->file_count++] = (input_file){.name = copy, .rank = rank};
    return LATHE_OK;
}

static lathe_status list_folder(walk *w, int rank) {
    char path[4096];
    lathe_check_folder(rank < 0 ? 1 : w->c.table->tp, w->o->folder, rank, path, sizeof path);
    DIR *folder = opendir(path);
    if (!folder)
        return rank >= 0 ? LATHE_OK : refuse(w, LATHE_IO, "%s: %s", path, strerror(errno));
    lathe_status status = LATHE_OK;
    for (const struct dirent *e; status == LATHE_OK && (e = readdir(folder));) {
        const size_t n = strlen(e->d_name);
        if (n > 4 && strcmp(e->d_name + n - 4, ".npy") == 0)
            status = add_file(w, e->d_name, rank);
    }
    closedir(folder);
    return status;
}

static int compare_files(const void *a, const void *b) {
    const input_file *x = a;
    const input_file *y = b;
    return x->rank != y->rank ? x->rank - y->rank : strcmp(x->name, y->name);
}

static lathe_status list_files(walk *w) {
    lathe_status status = list_folder(w, -1);
    for (int rank = 0; status == LATHE_OK && w->c.table->tp > 1 && rank < w->c.table->tp; ++rank)
        status = list_folder(w, rank);
    if (w->file_count > 0)
        qsort(w->files, (size_t)w->file_count, sizeof *w->files, compare_files);
    return status;
}

static input_file *find_file(const walk *w, const char *name, int rank) {
    for (int i = 0; i < w->file_count; ++i)
        if (w->files[i].rank == rank && strcmp(w->files[i].name, name) == 0)
            return &w->files[i];
    return NULL;
}

static void place(const walk *w, const char *name) {
    input_file *f = find_file(w, name, -1);
    if (f)
        f->placed = true;
}

/* ---- step inputs ---- */

static void place_caches(const walk *w, const lathe_step_buffer *b) {
    char name[LATHE_NAMED_BYTES];
    for (int i = 0; i < (b->per_layer ? b->layer_count : 1); ++i) {
        lathe_named_format(b->name, b->per_layer ? b->layers[i] : -1, name, sizeof name);
        place(w, name);
    }
}

/* What every step may be given, whether its layout uses it or not, and what this one declares. */
static void place_step_inputs(const walk *w) {
    const lathe_step_table *t = w->c.table;
    char name[LATHE_NAMED_BYTES];
    place(w, "tokens");
    place(w, "positions");
    for (int g = 0; g < t->group_count; ++g) {
        static const char *const kinds[] = {"block_tables", "seq_lens", "slot_mapping"};
        for (int i = 0; i < 3; ++i) {
            snprintf(name, sizeof name, "%s.%s", kinds[i], t->groups[g].name);
            place(w, name);
        }
    }
    for (int b = 0; b < t->buffer_count; ++b) {
        if (t->buffers[b].lifetime == LATHE_LIFETIME_INPUT &&
            strcmp(t->buffers[b].name, "rank") != 0)
            place(w, t->buffers[b].name);
        if (t->buffers[b].lifetime == LATHE_LIFETIME_KV)
            place_caches(w, &t->buffers[b]);
    }
}

static bool is_step_input(const walk *w, const char *name) {
    if (lathe_step_files_implicit(name))
        return true;
    const char *base = name[0] == 'L' && strchr(name, '.') ? strchr(name, '.') + 1 : name;
    const int b = lathe_step_table_find_buffer(w->c.table, base);
    return b >= 0 && (w->c.table->buffers[b].lifetime == LATHE_LIFETIME_INPUT ||
                      w->c.table->buffers[b].lifetime == LATHE_LIFETIME_KV);
}

/* ---- values ---- */

static lathe_status note_name(walk *w, const char *name) {
    for (int i = 0; i < w->name_count; ++i)
        if (strcmp(w->names[i], name) == 0)
            return LATHE_OK;
    char **more = realloc(w->names, ((size_t)w->name_count + 1) * sizeof *more);
    if (more)
        w->names = more;
    char *copy = more ? strdup(name) : NULL;
    if (!copy)
        return refuse(w, LATHE_NO_MEMORY, "no memory");
    w->names[w->name_count++] = copy;
    return LATHE_OK;
}

static lathe_status check_array(walk *w, const char *folder, const char *name,
                                const lathe_step_value *v, const lathe_npy *array) {
    const int skip = lathe_check_is_sum(v, array) ? 1 : 0;
    char found[200], wanted[200];
    if (!skip && array->type != lathe_named_type(v->arg->dtype))
        return refuse(w, LATHE_INVALID, "%s/%s.npy: found elements of type %s; allowed: %s", folder,
                      name, lathe_npy_type_name(array->type),
                      lathe_npy_type_name(lathe_named_type(v->arg->dtype)));
    if (lathe_input_files_fit(array->shape, array->rank, v->shape.dim + skip,
                              v->shape.count - skip))
        return LATHE_OK;
    format_shape(array->shape, array->rank, found, sizeof found);
    format_shape(v->shape.dim + skip, v->shape.count - skip, wanted, sizeof wanted);
    return refuse(w, LATHE_INVALID,
                  "%s/%s.npy: found the shape %s; allowed: %s, with or without leading 1s, or with "
                  "dimensions after the first taken together",
                  folder, name, found, wanted);
}

/* The file that a rank will be given, its own before the one for all. */
static lathe_status place_value(walk *w, int rank, const char *name, const lathe_step_value *v) {
    char folder[4096];
    lathe_npy array;
    input_file *f = w->c.table->tp > 1 ? find_file(w, name, rank) : NULL;
    if (!f)
        f = find_file(w, name, -1);
    if (!f)
        return LATHE_OK;
    f->placed = f->value = true;
    lathe_check_folder(f->rank < 0 ? 1 : w->c.table->tp, w->o->folder, f->rank, folder,
                       sizeof folder);
    bool found;
    const lathe_status status =
        lathe_named_read_header(folder, name, &array, &found, w->c.message, w->c.size);
    return status == LATHE_OK ? check_array(w, folder, name, v, &array) : status;
}

static lathe_status walk_launch(walk *w, int index, bool step) {
    const lathe_step_launch *first = &w->c.launches[0][index];
    lathe_status status = LATHE_OK;
    for (int i = 0; step && status == LATHE_OK && i < first->value_count; ++i) {
        const lathe_step_value *v = &first->values[i];
        char name[LATHE_NAMED_BYTES];
        if (!lathe_check_may_override(v))
            continue;
        lathe_check_name(v, *lathe_check_written(&w->c, v), name, sizeof name);
        status = note_name(w, name);
        for (int rank = 0; status == LATHE_OK && rank < w->o->ranks; ++rank)
            status = place_value(w, rank, name, &w->c.launches[rank][index].values[i]);
    }
    for (int i = 0; i < first->value_count; ++i) {
        const lathe_step_value *v = &first->values[i];
        const bool out = v->arg->dir == LATHE_DIR_OUT || v->arg->dir == LATHE_DIR_INOUT;
        if (v->address && (v->buffer ? out : lathe_check_publishes(v)))
            *lathe_check_written(&w->c, v) = lathe_check_writer(first);
    }
    return status;
}

static lathe_status walk_launches(walk *w, int variant) {
    int count = 0;
    lathe_status status = LATHE_OK;
    int ranks = 0;
    for (; status == LATHE_OK && ranks < w->o->ranks; ++ranks) {
        const lathe_step_launch *l = lathe_engine_launches(w->o->engines[ranks], variant, &count);
        w->c.launches[ranks] = lathe_check_collectives(l, count);
        if (!w->c.launches[ranks])
            status = refuse(w, LATHE_NO_MEMORY, "no memory");
    }
    for (int i = 0; status == LATHE_OK && i < count; ++i)
        if (w->c.launches[0][i].kernel)
            status = walk_launch(w, i, variant != LATHE_PREPARE);
    for (int rank = 0; rank < ranks; ++rank)
        if (w->c.launches[rank])
            lathe_check_collectives_free(w->c.launches[rank], count);
    return status;
}

static lathe_status walk_variant(walk *w, int variant) {
    const int places = w->c.table->buffer_count + w->c.table->mailbox_count;
    w->c.written = malloc(((size_t)places + 1) * sizeof *w->c.written);
    if (!w->c.written)
        return refuse(w, LATHE_NO_MEMORY, "no memory");
    for (int b = 0; b < places; ++b)
        w->c.written[b] = LATHE_FROM_NOWHERE;
    lathe_status status = walk_launches(w, LATHE_PREPARE);
    if (status == LATHE_OK)
        status = walk_launches(w, variant);
    free(w->c.written);
    return status;
}

/* ---- what has no place ---- */

/* The values of the layer that the file names, or of the first. */
static void list_names(const walk *w, const char *name, char *text, size_t size) {
    const char *dot = strchr(name, '.');
    const size_t length = name[0] == 'L' && dot ? (size_t)(dot - name) + 1 : 0;
    bool same = false;
    for (int i = 0; i < w->name_count; ++i)
        same = same || (length && strncmp(w->names[i], name, length) == 0);
    size_t n = 0;
    int listed = 0;
    text[0] = 0;
    for (int i = 0; i < w->name_count && listed <= LISTED && n < size; ++i) {
        if (same && strncmp(w->names[i], name, length) != 0)
            continue;
        n += (size_t)snprintf(text + n, size - n, "%s%s", n ? " " : "",
                              listed++ < LISTED ? w->names[i] : "...");
    }
}

static lathe_status refuse_file(walk *w, const input_file *f) {
    char folder[4096], names[4096];
    lathe_check_folder(f->rank < 0 ? 1 : w->c.table->tp, w->o->folder, f->rank, folder,
                       sizeof folder);
    if (f->rank < 0 && !w->step_inputs && is_step_input(w, f->name))
        return refuse(w, LATHE_INVALID,
                      "%s/%s.npy: a step input without tokens.npy; allowed: all inputs of a step "
                      "together",
                      folder, f->name);
    if (!w->o->check)
        return refuse(w, LATHE_INVALID,
                      "%s/%s.npy: no step input; values within the step are replaced with --check "
                      "only",
                      folder, f->name);
    list_names(w, f->name, names, sizeof names);
    return refuse(w, LATHE_INVALID,
                  "%s/%s.npy: no launch reads a value of this name; the step has %d layers; "
                  "allowed: step inputs, and values such as %s",
                  folder, f->name, w->c.table->layer_count, names);
}

/* With tokens.npy all inputs come from files, but for caches. */
static lathe_status require_step_inputs(walk *w) {
    for (int b = 0; b < w->c.table->buffer_count; ++b) {
        const lathe_step_buffer *buffer = &w->c.table->buffers[b];
        if (buffer->lifetime == LATHE_LIFETIME_INPUT && strcmp(buffer->name, "rank") != 0 &&
            !find_file(w, buffer->name, -1))
            return refuse(w, LATHE_INVALID,
                          "%s: found tokens.npy, but no %s.npy; allowed: all inputs of a step "
                          "together",
                          w->o->folder, buffer->name);
    }
    return LATHE_OK;
}

static lathe_status check_all(walk *w, int *values) {
    lathe_status status = list_files(w);
    w->step_inputs = find_file(w, "tokens", -1) != NULL;
    if (status == LATHE_OK && w->file_count == 0)
        return refuse(w, LATHE_INVALID, "--inputs %s: it holds no .npy file", w->o->folder);
    if (status == LATHE_OK && w->step_inputs) {
        place_step_inputs(w);
        status = require_step_inputs(w);
    }
    for (int v = 0; status == LATHE_OK && w->o->check && v < w->c.table->variant_count; ++v)
        if (w->o->variant < 0 || v == w->o->variant)
            status = walk_variant(w, v);
    for (int i = 0; status == LATHE_OK && i < w->file_count; ++i) {
        *values += w->files[i].value;
        if (!w->files[i].placed)
            status = refuse_file(w, &w->files[i]);
    }
    return status;
}

lathe_status lathe_input_files_check(const lathe_input_files *files, int *values, char *message,
                                     size_t size) {
    const lathe_check_options options = {.engines = files->engines, .ranks = files->ranks};
    walk w = {.o = files,
              .c = {.options = &options,
                    .ranks = files->ranks,
                    .table = lathe_engine_table(files->engines[0]),
                    .message = message,
                    .size = size}};
    *values = 0;
    const lathe_status status = check_all(&w, values);
    for (int i = 0; i < w.file_count; ++i)
        free(w.files[i].name);
    for (int i = 0; i < w.name_count; ++i)
        free(w.names[i]);
    free(w.files);
    free(w.names);
    return status;
}
