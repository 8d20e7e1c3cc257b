/* register_features.h: registers the tables of features (feature.h). main.c calls it, with its lists. */
#pragma once
#include "server/feature.h"
#include <stdbool.h>

void features_register(const struct feature *const *features); /* a list that ends with NULL; once */

/* A mode of the program that has fewer features: of `settings_only` it accepts the options, without effect. Commands
 * and sections of INFO for which the functions return false are left out. `container` is NULL for a top-level command.
 */
struct feature_mode {
    const struct feature *const *features, *const *settings_only; /* lists that end with NULL */
    bool (*offers_command)(const char *container, const char *name);
    bool (*offers_section)(const char *name);
};
void features_register_mode(const struct feature_mode *mode); /* instead of features_register() */
