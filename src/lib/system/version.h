/* version.h: the version of the project. The first two numbers are those of the Valkey version that it is compatible
 * with; the third counts the project's own releases. debian/changelog has an entry for it. */
#pragma once
#define PROJECT_VERSION "9.1.0"
/* The first eight digits of the commit that was built, and whether tracked files differed from it. The Makefile
 * generates both for valkey-server; they are zeros if the sources were not built in a Git repository. */
extern const char git_commit[];
extern const int git_dirty;
