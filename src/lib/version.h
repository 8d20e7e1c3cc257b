/* version.h: the version of the project. The first two numbers are those of the Valkey that it follows; the third
 * counts its own releases. debian/changelog has an entry for it. */
#ifndef LIB_VERSION_H
#define LIB_VERSION_H
#define PROJECT_VERSION "9.1.0"
#endif
