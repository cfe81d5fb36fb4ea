/* SPDX-License-Identifier: Apache-2.0
 * Parses one source with libclang into tokens and declarations. The only file that includes
 * libclang. */
#include "scan_unit.h"

#include <clang-c/Index.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 65536u

struct lathe_pool_block {
    lathe_pool_block *next;
    size_t used, size;
    _Alignas(max_align_t) unsigned char bytes[];
};

void *lathe_scan_alloc(lathe_scan_unit *u, size_t bytes) {
    const size_t align = _Alignof(max_align_t);
    bytes = (bytes + align - 1) / align * align;
    lathe_pool_block *b = u->blocks;
    if (!b || b->size - b->used < bytes) {
        const size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = malloc(sizeof *b + size);
        if (!b) {
            u->failed = true;
            return NULL;
        }
        *b = (lathe_pool_block){.next = u->blocks, .size = size};
        u->blocks = b;
    }
    void *memory = b->bytes + b->used;
    b->used += bytes;
    return memory;
}

void lathe_scan_unit_destroy(lathe_scan_unit *u) {
    while (u->blocks) {
        lathe_pool_block *next = u->blocks->next;
        free(u->blocks);
        u->blocks = next;
    }
    *u = (lathe_scan_unit){0};
}

void *lathe_scan_grow(lathe_scan_unit *u, void *array, size_t count, size_t size) {
    if (count && (count < 8 || count & (count - 1)))
        return array;
    void *larger = lathe_scan_alloc(u, (count ? 2 * count : 8) * size);
    if (larger && count)
        memcpy(larger, array, count * size);
    return larger;
}

const char *lathe_scan_copy(lathe_scan_unit *u, const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = lathe_scan_alloc(u, bytes);
    return copy ? memcpy(copy, text, bytes) : "";
}

static const char *format_list(lathe_scan_unit *u, const char *format, va_list list) {
    va_list again;
    va_copy(again, list);
    const int length = vsnprintf(NULL, 0, format, list);
    char *text = length < 0 ? NULL : lathe_scan_alloc(u, (size_t)length + 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text ? text : "";
}

const char *lathe_scan_format(lathe_scan_unit *u, const char *format, ...) {
    va_list list;
    va_start(list, format);
    const char *text = format_list(u, format, list);
    va_end(list);
    return text;
}

void lathe_scan_find(lathe_scan_unit *u, const char *file, int line, const char *format, ...) {
    lathe_finding *larger = lathe_scan_grow(u, u->findings, u->finding_count, sizeof *larger);
    if (!larger)
        return;
    u->findings = larger;
    va_list list;
    va_start(list, format);
    const char *message = format_list(u, format, list);
    va_end(list);
    u->findings[u->finding_count++] = (lathe_finding){lathe_scan_copy(u, file), line, message};
}

bool lathe_token_is(const lathe_token *t, const char *text) {
    return strcmp(t->text, text) == 0;
}

size_t lathe_token_close(const lathe_token_list *l, size_t i, size_t end) {
    int depth = 0;
    for (; i < end; i++) {
        if (l->tokens[i].kind != LATHE_TOKEN_MARK)
            continue;
        const char c = l->tokens[i].text[0];
        if (c == '(' || c == '[' || c == '{')
            depth++;
        if ((c == ')' || c == ']' || c == '}') && --depth == 0)
            return i + 1;
    }
    return end;
}

/* --- libclang --- */

typedef struct {
    lathe_scan_unit *unit;
    const lathe_scan_source *source;
    CXTranslationUnit tu;
} parse;

static const char *take(lathe_scan_unit *u, CXString s) {
    const char *text = clang_getCString(s);
    text = lathe_scan_copy(u, text ? text : "");
    clang_disposeString(s);
    return text;
}

/* The path below the root, or NULL where the file lies elsewhere. */
static const char *below(const char *path, const char *root) {
    const size_t n = strlen(root);
    if (strncmp(path, root, n) != 0 || path[n] != '/')
        return NULL;
    return path + n + 1;
}

/* How messages name a file, or NULL for one that the rules do not look at. */
static const char *show(const parse *p, const char *path, bool prims) {
    if (strcmp(path, p->source->path) == 0)
        return p->source->shown;
    const char *inner = below(path, p->source->root);
    if (!inner || (!prims && strncmp(inner, "prims/", 6) == 0))
        return NULL;
    return lathe_scan_format(p->unit, "%s/%s", p->source->root_shown, inner);
}

static lathe_token_kind kind_of(CXTokenKind kind) {
    if (kind == CXToken_Punctuation)
        return LATHE_TOKEN_MARK;
    return kind == CXToken_Literal ? LATHE_TOKEN_LITERAL : LATHE_TOKEN_NAME;
}

static void read_tokens(parse *p, CXFile file, lathe_token_list *list) {
    size_t bytes = 0;
    if (!clang_getFileContents(p->tu, file, &bytes))
        return;
    const CXSourceRange range =
        clang_getRange(clang_getLocationForOffset(p->tu, file, 0),
                       clang_getLocationForOffset(p->tu, file, (unsigned)bytes));
    CXToken *tokens = NULL;
    unsigned count = 0;
    clang_tokenize(p->tu, range, &tokens, &count);
    lathe_token *out = lathe_scan_alloc(p->unit, (count ? count : 1) * sizeof *out);
    list->tokens = out;
    for (unsigned i = 0; out && i < count; i++) {
        const CXTokenKind kind = clang_getTokenKind(tokens[i]);
        if (kind == CXToken_Comment)
            continue;
        unsigned line, offset;
        clang_getFileLocation(clang_getTokenLocation(p->tu, tokens[i]), NULL, &line, NULL, &offset);
        out[list->count++] = (lathe_token){take(p->unit, clang_getTokenSpelling(p->tu, tokens[i])),
                                           kind_of(kind), (int)line, offset};
    }
    clang_disposeTokens(p->tu, tokens, count);
}

/* The tokens of a file that the rules look at; read when first asked for. NULL: not looked at. */
static lathe_token_list *list_of(parse *p, CXFile file) {
    lathe_scan_unit *u = p->unit;
    const char *shown = show(p, take(u, clang_getFileName(file)), false);
    if (!shown)
        return NULL;
    for (size_t i = 0; i < u->list_count; i++)
        if (strcmp(u->lists[i]->file, shown) == 0)
            return u->lists[i];
    lathe_token_list **larger = lathe_scan_grow(u, u->lists, u->list_count, sizeof *larger);
    lathe_token_list *list = lathe_scan_alloc(u, sizeof *list);
    if (!larger || !list)
        return NULL;
    *list = (lathe_token_list){.file = shown};
    u->lists = larger;
    u->lists[u->list_count++] = list;
    read_tokens(p, file, list);
    return list;
}

static size_t token_at(const lathe_token_list *l, unsigned offset) {
    size_t low = 0, high = l->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (l->tokens[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

typedef struct {
    parse *parse;
    lathe_declaration *declaration;
    lathe_parameter *parameters;
} parameter_visit;

static enum CXChildVisitResult add_parameter(CXCursor c, CXCursor parent, CXClientData data) {
    (void)parent;
    if (clang_getCursorKind(c) != CXCursor_ParmDecl)
        return CXChildVisit_Continue;
    parameter_visit *v = data;
    lathe_declaration *d = v->declaration;
    lathe_scan_unit *u = v->parse->unit;
    lathe_parameter *larger = lathe_scan_grow(u, v->parameters, d->parameter_count, sizeof *larger);
    if (!larger)
        return CXChildVisit_Break;
    d->parameters = v->parameters = larger;
    CXType type = clang_getCursorType(c);
    const bool pointer = type.kind == CXType_Pointer;
    if (pointer)
        type = clang_getPointeeType(type);
    const char *spelling = take(u, clang_getTypeSpelling(type));
    const bool readonly = clang_isConstQualifiedType(type);
    unsigned line;
    clang_getExpansionLocation(clang_getCursorLocation(c), NULL, &line, NULL, NULL);
    v->parameters[d->parameter_count++] =
        (lathe_parameter){take(u, clang_getCursorSpelling(c)),
                          strncmp(spelling, "const ", 6) == 0 ? spelling + 6 : spelling, pointer,
                          readonly, (int)line};
    return CXChildVisit_Continue;
}

static bool is_function(enum CXCursorKind kind) {
    return kind == CXCursor_FunctionTemplate || kind == CXCursor_FunctionDecl;
}

static void add_declaration(parse *p, CXCursor c) {
    lathe_scan_unit *u = p->unit;
    const CXSourceRange extent = clang_getCursorExtent(c);
    CXFile file = NULL;
    unsigned first, end, line;
    clang_getExpansionLocation(clang_getRangeStart(extent), &file, NULL, NULL, &first);
    clang_getExpansionLocation(clang_getRangeEnd(extent), NULL, NULL, NULL, &end);
    clang_getExpansionLocation(clang_getCursorLocation(c), NULL, &line, NULL, NULL);
    const lathe_token_list *list = file ? list_of(p, file) : NULL;
    if (!list)
        return;
    lathe_declaration *larger =
        lathe_scan_grow(u, u->declarations, u->declaration_count, sizeof *larger);
    if (!larger)
        return;
    u->declarations = larger;
    lathe_declaration *d = &u->declarations[u->declaration_count++];
    *d = (lathe_declaration){.name = take(u, clang_getCursorSpelling(c)),
                             .function = is_function(clang_getCursorKind(c)),
                             .list = list,
                             .first = token_at(list, first),
                             .end = token_at(list, end),
                             .line = (int)line};
    if (d->function)
        clang_visitChildren(c, add_parameter, &(parameter_visit){p, d, NULL});
}

static enum CXChildVisitResult visit(CXCursor c, CXCursor parent, CXClientData data) {
    (void)parent;
    const enum CXCursorKind kind = clang_getCursorKind(c);
    if (kind == CXCursor_Namespace || kind == CXCursor_LinkageSpec)
        return CXChildVisit_Recurse;
    if (clang_isDeclaration(kind))
        add_declaration(data, c);
    return CXChildVisit_Continue;
}

/* Every file included counts, also one without a declaration. */
static void include(CXFile file, CXSourceLocation *stack, unsigned depth, CXClientData data) {
    (void)stack, (void)depth;
    list_of(data, file);
}

static void read_diagnostics(parse *p) {
    const unsigned count = clang_getNumDiagnostics(p->tu);
    for (unsigned i = 0; i < count; i++) {
        CXDiagnostic d = clang_getDiagnostic(p->tu, i);
        if (clang_getDiagnosticSeverity(d) >= CXDiagnostic_Error) {
            p->unit->broken = true;
            CXFile file = NULL;
            unsigned line;
            clang_getExpansionLocation(clang_getDiagnosticLocation(d), &file, &line, NULL, NULL);
            const char *path = file ? take(p->unit, clang_getFileName(file)) : p->source->path;
            const char *shown = show(p, path, true);
            lathe_scan_find(p->unit, shown ? shown : path, (int)line, "does not parse as C++17: %s",
                            take(p->unit, clang_getDiagnosticSpelling(d)));
        }
        clang_disposeDiagnostic(d);
    }
}

static enum CXErrorCode open_source(parse *p, CXIndex index) {
    const lathe_scan_source *s = p->source;
    const char *arguments[] = {
        "-xc++", "-std=c++17", "-w", "-ferror-limit=8",
        "-I",    s->root,      "-I", lathe_scan_format(p->unit, "%s/prims/host", s->root)};
    const size_t bytes = (s->memory_count ? s->memory_count : 1) * sizeof(struct CXUnsavedFile);
    struct CXUnsavedFile *files = lathe_scan_alloc(p->unit, bytes);
    if (!files)
        return CXError_Failure;
    for (size_t i = 0; i < s->memory_count; i++)
        files[i] =
            (struct CXUnsavedFile){s->memory[i].path, s->memory[i].text, strlen(s->memory[i].text)};
    return clang_parseTranslationUnit2(index, s->path, arguments,
                                       (int)(sizeof arguments / sizeof *arguments), files,
                                       (unsigned)s->memory_count, 0u, &p->tu);
}

void lathe_scan_unit_parse(lathe_scan_unit *u, const lathe_scan_source *s) {
    parse p = {.unit = u, .source = s};
    CXIndex index = clang_createIndex(0, 0);
    const enum CXErrorCode code = open_source(&p, index);
    if (code != CXError_Success) {
        u->broken = true;
        lathe_scan_find(u, s->shown, 1, "libclang cannot read this file (error %d)", (int)code);
    } else {
        read_diagnostics(&p);
        clang_getInclusions(p.tu, include, &p);
        clang_visitChildren(clang_getTranslationUnitCursor(p.tu), visit, &p);
        clang_disposeTranslationUnit(p.tu);
    }
    clang_disposeIndex(index);
}
