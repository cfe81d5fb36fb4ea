/* SPDX-License-Identifier: Apache-2.0
 * Covers a list of parts with the deployment's uses, read in order. */
#include "cover.h"

#include "text.h"

#include <string.h>

static const lathe_provider *find_provider(lathe_plan *plan, const lathe_use *use) {
    for (size_t i = 0; i < plan->provider_count; i++)
        if (strcmp(plan->providers[i]->name, use->provider) == 0)
            return plan->providers[i];
    lathe_provider *p = lathe_provider_load(plan->lua, use->where, use->provider);
    plan->providers = lathe_arena_grow(plan->arena, plan->providers, plan->provider_count,
                                       sizeof *plan->providers);
    plan->providers[plan->provider_count++] = p;
    return p;
}

static const lathe_part *find_part(const lathe_part_list *list, const char *name, size_t *index) {
    for (size_t i = 0; i < list->part_count; i++)
        if (strcmp(list->parts[i]->name, name) == 0) {
            *index = i;
            return list->parts[i];
        }
    return NULL;
}

/* Whether the list has all parts of the use and none is covered yet. */
static bool applies(const lathe_part_list *list, const lathe_use *use,
                    const lathe_use *const *covered) {
    for (size_t i = 0; i < use->part_count; i++) {
        size_t index;
        if (!find_part(list, use->parts[i], &index) || covered[index])
            return false;
    }
    return true;
}

/* For each part of the list the use that covers it, NULL where none does. */
static const lathe_use **assign(lathe_plan *plan, const lathe_part_list *list) {
    const lathe_deployment *d = plan->deployment;
    const lathe_use **covered =
        lathe_arena_alloc(plan->arena, list->part_count + 1, sizeof *covered);
    for (size_t i = 0; i < d->use_count; i++) {
        const lathe_use *use = &d->uses[i];
        if (!applies(list, use, covered))
            continue;
        for (size_t j = 0; j < use->part_count; j++) {
            size_t index = 0;
            (void)find_part(list, use->parts[j], &index);
            if (covered[index])
                lathe_diag_fail(lathe_arena_diag(plan->arena), use->where,
                                "use \"%s\": part \"%s\" stands twice", use->provider,
                                use->parts[j]);
            covered[index] = use;
        }
    }
    return covered;
}

static bool fits(const lathe_kinds *cover, const lathe_launch *launch) {
    size_t found = 0;
    for (size_t i = 0; i < launch->part_count; i++)
        for (size_t j = 0; j < cover->kind_count; j++)
            found += strcmp(launch->parts[i]->kind, cover->kinds[j]) == 0;
    return found == launch->part_count && launch->part_count == cover->kind_count;
}

static void check_kinds(lathe_plan *plan, const lathe_launch *launch) {
    const lathe_provider *p = launch->provider;
    lathe_text allowed = {.arena = plan->arena}, found = {.arena = plan->arena};
    for (size_t i = 0; i < p->cover_count; i++) {
        if (fits(&p->covers[i], launch))
            return;
        for (size_t j = 0; j < p->covers[i].kind_count; j++)
            lathe_text_print(&allowed, "%s%s", j ? " + " : i ? " | " : "", p->covers[i].kinds[j]);
    }
    for (size_t i = 0; i < launch->part_count; i++)
        lathe_text_print(&found, "%s%s", i ? " + " : "", launch->parts[i]->kind);
    lathe_diag_fail(lathe_arena_diag(plan->arena), launch->use->where,
                    "%s: provider %s covers parts of the kinds %s, found %s",
                    lathe_bind_describe(plan->arena, launch), p->name, lathe_text_string(&allowed),
                    lathe_text_string(&found));
}

static lathe_launch make_launch(lathe_plan *plan, const lathe_part_list *list,
                                const lathe_use *const *covered, const lathe_use *use) {
    lathe_launch launch = {.use = use, .provider = find_provider(plan, use), .list = list->name};
    launch.parts = lathe_arena_alloc(plan->arena, use->part_count, sizeof *launch.parts);
    for (size_t i = 0; i < list->part_count; i++)
        if (covered[i] == use)
            launch.parts[launch.part_count++] = list->parts[i];
    check_kinds(plan, &launch);
    return launch;
}

/* Every list of parts that the model has. */
static const lathe_part_list *list_at(const lathe_model *m, size_t i) {
    const lathe_part_list *others[] = {&m->prepare, &m->prologue, &m->epilogue, &m->probe.list};
    const size_t count = sizeof others / sizeof *others;
    return i < count ? others[i] : i - count < m->kind_count ? &m->kinds[i - count] : NULL;
}

/* Whether one of the first `lists` has it. */
static bool has_part(const lathe_model *m, size_t lists, const char *name) {
    const lathe_part_list *list;
    size_t index;
    for (size_t i = 0; i < lists && (list = list_at(m, i)); i++)
        if (find_part(list, name, &index))
            return true;
    return false;
}

static const char *list_parts(lathe_arena *arena, const lathe_model *m) {
    lathe_text text = {.arena = arena};
    const lathe_part_list *list;
    for (size_t i = 0; (list = list_at(m, i)); i++)
        for (size_t j = 0; j < list->part_count; j++)
            if (!has_part(m, i, list->parts[j]->name))
                lathe_text_print(&text, "%s%s", text.size ? " " : "", list->parts[j]->name);
    return lathe_text_string(&text);
}

/* A use that covers nothing: why not, in a list that has all its parts if there is one. */
static _Noreturn void refuse_use(lathe_plan *plan, const lathe_use *use) {
    const lathe_part_list *list;
    const char *why = "no list of parts has all of its parts";
    size_t part;
    for (size_t i = 0; (list = list_at(plan->model, i)); i++) {
        const lathe_use **covered = assign(plan, list), *other = NULL;
        bool whole = true;
        for (size_t j = 0; j < use->part_count && whole; j++) {
            whole = find_part(list, use->parts[j], &part);
            other = whole && covered[part] ? covered[part] : other;
        }
        if (whole && other)
            why =
                lathe_arena_print(plan->arena, "in %s, use \"%s\" (%s:%d) comes first", list->name,
                                  other->provider, other->where.file, other->where.line);
    }
    lathe_diag_fail(lathe_arena_diag(plan->arena), use->where, "use \"%s\" covers nothing: %s",
                    use->provider, why);
}

/* A name that nothing has is a slip of the pen, whatever else covers its part; a use that covers
 * nothing is not what its author thinks. */
void lathe_cover_check(lathe_plan *plan) {
    const lathe_deployment *d = plan->deployment;
    for (size_t i = 0; i < d->use_count; i++)
        (void)find_provider(plan, &d->uses[i]);
    for (size_t i = 0; i < d->use_count; i++)
        for (size_t j = 0; j < d->uses[i].part_count; j++)
            if (!has_part(plan->model, SIZE_MAX, d->uses[i].parts[j]))
                lathe_diag_fail(lathe_arena_diag(plan->arena), d->uses[i].where,
                                "use \"%s\": unknown part \"%s\"; allowed: %s", d->uses[i].provider,
                                d->uses[i].parts[j], list_parts(plan->arena, plan->model));
    const lathe_part_list *list;
    bool *applied = lathe_arena_alloc(plan->arena, d->use_count + 1, sizeof *applied);
    for (size_t i = 0; (list = list_at(plan->model, i)); i++) {
        const lathe_use **covered = assign(plan, list);
        for (size_t j = 0; j < list->part_count; j++)
            if (covered[j])
                applied[covered[j] - d->uses] = true;
    }
    for (size_t i = 0; i < d->use_count; i++)
        if (!applied[i])
            refuse_use(plan, &d->uses[i]);
}

/* A part that is left over. */
static _Noreturn void refuse_part(lathe_plan *plan, const lathe_part_list *list,
                                  const lathe_part *part) {
    const lathe_deployment *d = plan->deployment;
    lathe_diag_fail(lathe_arena_diag(plan->arena), part->where,
                    "%s: part \"%s\" of kind %s is covered by no use of the deployment (%s:%d)",
                    list->name, part->name, part->kind, d->where.file, d->where.line);
}

lathe_launch *lathe_cover(lathe_plan *plan, const lathe_part_list *list, size_t *count) {
    const lathe_use **covered = assign(plan, list);
    lathe_launch *launches = lathe_arena_alloc(plan->arena, list->part_count + 1, sizeof *launches);
    *count = 0;
    for (size_t i = 0; i < list->part_count; i++) {
        if (!covered[i])
            refuse_part(plan, list, list->parts[i]);
        bool launched = false;
        for (size_t j = 0; j < i; j++)
            launched = launched || covered[j] == covered[i];
        if (!launched)
            launches[(*count)++] = make_launch(plan, list, covered, covered[i]);
    }
    return launches;
}
