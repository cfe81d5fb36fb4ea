/* SPDX-License-Identifier: Apache-2.0
 * The cache of compiled kernels: where it is, whether it takes more, what in it is damaged. */
#include "doctor.h"

#include <string.h>

#include "cache.h"
#include "cache_survey.h"

static void say_entries(lathe_doctor *d, const char *folder, const lathe_cache_survey *s) {
    const double mb = (double)s->bytes * 1e-6;
    if (s->damaged)
        lathe_doctor_say(d, LATHE_DOCTOR_BROKEN, "cache entries",
                         "they are built again when needed; or remove them",
                         "%d of %d are damaged, the first %s", s->damaged, s->entries, s->first);
    else
        lathe_doctor_say(d, LATHE_DOCTOR_OK, "cache entries", NULL,
                         "%d kernels, %.1f MB, all whole", s->entries, mb);
    if (s->left)
        lathe_doctor_say(d, LATHE_DOCTOR_OK, "cache left", NULL,
                         "%d folders of builds that run now or were killed; the next build of the "
                         "same kernel removes them (%s)",
                         s->left, folder);
}

void lathe_doctor_cache(lathe_doctor *d, const char *wanted) {
    char text[1024] = "";
    const lathe_message_buffer message = {text, sizeof text};
    const char *const advice = "set LATHE_CACHE to a folder that can be written; until then every "
                               "process compiles for itself";
    lathe_cache *cache;
    lathe_cache_survey survey = {0};
    lathe_status status = lathe_cache_create(wanted, NULL, &cache, message);
    const char *folder = cache ? lathe_cache_folder(cache) : "";
    if (status == LATHE_OK)
        status = lathe_cache_survey_read(folder, &survey, message);
    if (status != LATHE_OK) {
        lathe_doctor_say(d, LATHE_DOCTOR_BROKEN, "cache", advice, "%s", text);
    } else if (!survey.there) {
        lathe_doctor_say(d, LATHE_DOCTOR_OK, "cache", NULL, "%s, made by the first build", folder);
    } else {
        if (survey.error)
            lathe_doctor_say(d, LATHE_DOCTOR_BROKEN, "cache", advice, "%s cannot be written: %s",
                             folder, strerror(survey.error));
        else
            lathe_doctor_say(d, LATHE_DOCTOR_OK, "cache", NULL, "%s, can be written", folder);
        say_entries(d, folder, &survey);
    }
    lathe_cache_destroy(cache);
}
