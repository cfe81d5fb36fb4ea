/* SPDX-License-Identifier: Apache-2.0
 * Reads the arguments of a command into the places that it names. */
#include "command_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

#define MOST_OPTIONS 64

int lathe_command_line_refuse(const char *command, const char *what, const char *found,
                              const char *allowed) {
    if (found)
        fprintf(stderr, "lathe %s: %s '%s'; allowed: %s\n", command, what, found, allowed);
    else
        fprintf(stderr, "lathe %s: %s; allowed: %s\n", command, what, allowed);
    return LATHE_EXIT_USAGE + 1;
}

static int refuse_name(const lathe_command_line *line, const char *name) {
    char allowed[80];
    snprintf(allowed, sizeof allowed, "those that lathe %s --help lists", line->command);
    return lathe_command_line_refuse(line->command, "unknown option", name, allowed);
}

/* Whether `word` is one of "word, word, ...". */
static bool is_listed(const char *word, const char *list) {
    const size_t length = strlen(word);
    for (const char *at = list; at && length > 0; at = strchr(at, ',')) {
        at += strspn(at, ", ");
        if (strcspn(at, ",") == length && strncmp(at, word, length) == 0)
            return true;
    }
    return false;
}

/* Decimal digits alone: no sign, no space, nothing behind. */
static bool parse_number(const char *text, int64_t *value) {
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && *text >= '0' && *text <= '9' && *end == 0;
}

static int take_number(const lathe_command_line *line, const lathe_option *o, const char *value) {
    char allowed[80];
    int64_t n;
    if (parse_number(value, &n) && n >= o->least && (o->most == 0 || n <= o->most)) {
        *o->number = n;
        return 0;
    }
    int used = snprintf(allowed, sizeof allowed, "a number from %lld", (long long)o->least);
    if (o->most)
        snprintf(allowed + used, sizeof allowed - (size_t)used, " to %lld", (long long)o->most);
    return lathe_command_line_refuse(line->command, o->name, value, allowed);
}

static int take_value(const lathe_command_line *line, const lathe_option *o, const char *value) {
    if (o->number)
        return take_number(line, o, value);
    if (o->text && !o->allowed && !*value && !o->may_be_empty)
        return lathe_command_line_refuse(line->command, o->name, value,
                                         "a value that is not empty");
    const bool good = o->take ? o->take(value, o->to) : !o->allowed || is_listed(value, o->allowed);
    if (!good)
        return lathe_command_line_refuse(line->command, o->name, value, o->allowed);
    if (o->text)
        *o->text = value;
    return 0;
}

/* The option at argv[*i]; *i moves on to its value. */
static int take_option(const lathe_command_line *line, bool *given, int argc, char *const *argv,
                       int *i) {
    const char *name = argv[*i];
    int index = 0;
    while (line->options[index].name && strcmp(line->options[index].name, name) != 0)
        ++index;
    const lathe_option *o = &line->options[index];
    if (!o->name || index == MOST_OPTIONS)
        return refuse_name(line, name);
    if (given[index])
        return lathe_command_line_refuse(line->command, "a second", name, "each option once");
    given[index] = true;
    if (o->flag) {
        *o->flag = true;
        return 0;
    }
    const char *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (!value || strncmp(value, "--", 2) == 0)
        return lathe_command_line_refuse(line->command, "no value after", name, "one");
    ++*i;
    return take_value(line, o, value);
}

static int take_target(const lathe_command_line *line, const char *word) {
    if (!line->target)
        return lathe_command_line_refuse(line->command, "unexpected", word, "options only");
    if (*line->target)
        return lathe_command_line_refuse(line->command, "a second target", word, "one");
    *line->target = word;
    return 0;
}

static int require(const lathe_command_line *line, const bool *given) {
    char allowed[160];
    if (line->target && !*line->target) {
        snprintf(allowed, sizeof allowed, "%s; see lathe %s --help", line->target_is,
                 line->command);
        return lathe_command_line_refuse(line->command, "no target", NULL, allowed);
    }
    snprintf(allowed, sizeof allowed, "it with a value; see lathe %s --help", line->command);
    for (int i = 0; line->options[i].name; ++i)
        if (line->options[i].required && !given[i])
            return lathe_command_line_refuse(line->command, "without", line->options[i].name,
                                             allowed);
    return 0;
}

int lathe_command_line_parse(const lathe_command_line *line, int argc, char **argv) {
    bool given[MOST_OPTIONS] = {false};
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(line->help, stdout);
            return LATHE_EXIT_OK + 1;
        }
        const int status = argv[i][0] == '-' ? take_option(line, given, argc, argv, &i)
                                             : take_target(line, argv[i]);
        if (status != 0)
            return status;
    }
    return require(line, given);
}

bool lathe_take_experts(const char *value, void *to) {
    const bool by_rank = strcmp(value, "ep") == 0;
    *(bool *)to = by_rank;
    return by_rank || strcmp(value, "full") == 0;
}
