/* SPDX-License-Identifier: Apache-2.0
 * inspect's facts as a JSON value: what `--json` prints and what a page is drawn from. */
#ifndef LATHE_INSPECT_JSON_H
#define LATHE_INSPECT_JSON_H

#include <jansson.h>

#include "inspect.h"

/* The caller drops it; NULL where there is no memory. */
json_t *lathe_inspect_json(const lathe_inspect *inspect);

#endif
