/* process_title.h: the title that ps shows. */
#pragma once
#include "server/config/config.h"
void process_keep_arguments(
    int argc, char **argv); /* call first: the title overwrites the arguments; argv then points at copies */
void process_title(void);   /* after listening: the title names the address */
void process_title_child(const char *title); /* in a child process: {title} becomes this */
extern const struct config_option process_title_options[];
