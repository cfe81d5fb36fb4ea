/* SPDX-License-Identifier: Apache-2.0
 * What a step wrote (a folder of dumped values) against a case's traces. */
#ifndef GOLDEN_COMPARE_H
#define GOLDEN_COMPARE_H

#include "golden_case.h"

/* Launch by launch: every value by its rule. Returns the number of values compared. */
int golden_compare_values(const golden_case *c, const golden_split *s, const char *dump);
/* The metadata of routing, where the batch is the whole case. */
void golden_compare_metadata(const golden_case *c, const char *dump);
/* Cache rows that the step inserted. */
void golden_compare_rows(const golden_case *c, const golden_split *s, const char *dump);
/* A whole step: stream, hidden and logits within 1.5e-2 or three times the case's noise; tokens
 * equal. */
void golden_compare_step(const golden_case *c, const golden_split *s, const char *dump);

#endif
