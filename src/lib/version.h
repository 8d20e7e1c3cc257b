/* version.h: the one place that says which version this is. */
#ifndef LIB_VERSION_H
#define LIB_VERSION_H
#define PROJECT_VERSION "9.0.0"
#endif
