/* version.h: the version of the project. */
#ifndef LIB_VERSION_H
#define LIB_VERSION_H
#define PROJECT_VERSION "9.0.0"
#endif
