/* check_rdb_main.c: valkey-check-rdb: checks an RDB file. The exit status is 0 if it is valid, else 1. */
#include "lib/system/version.h"
#include "tools/check_rdb.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int usage(const char *program, FILE *to, int status) {
    fprintf(to, "Usage: %s <rdb-file-name> [--format table|info|csv] [--stats] [--output <file>]\n", program);
    return status;
}

static int help(const char *program) {
    usage(program, stdout, 0);
    printf("\n"
           "Checks an RDB file. The exit status is 0 if it is valid.\n"
           "  --stats                    Show statistics of the keys of each type: number, sizes, expirations\n"
           "  --format table|info|csv    Format of the statistics (default: table)\n"
           "  --output <file>            Write the statistics to this file instead of standard output\n"
           "  -v, --version, -h, --help\n");
    return 0;
}

static bool format_of(const char *name, enum check_rdb_format *format) {
    static const char *const names[] = {
        [CHECK_RDB_TABLE] = "table", [CHECK_RDB_INFO] = "info", [CHECK_RDB_CSV] = "csv"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *format = (enum check_rdb_format)i;
            return true;
        }
    return false;
}

int main(int argc, char **argv) {
    struct check_rdb_options options = {.output = stdout};
    if (argc < 2) return usage(argv[0], stderr, 1);
    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) return help(argv[0]);
    if (argc == 2 && (strcmp(argv[1], "-v") == 0 || strcmp(argv[1], "--version") == 0)) {
        printf("valkey-check-rdb v=" PROJECT_VERSION "\n");
        return 0;
    }
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--stats") == 0) {
            options.stats = true;
        } else if (strcmp(argv[i], "--format") == 0 && i + 1 < argc) {
            if (!format_of(argv[++i], &options.format)) return usage(argv[0], stderr, 1);
        } else if (strcmp(argv[i], "--output") == 0 && i + 1 < argc && options.output == stdout) {
            if (!(options.output = fopen(argv[++i], "w"))) {
                fprintf(stderr, "Cannot open file %s: %s\n", argv[i], strerror(errno));
                return 1;
            }
        } else {
            return usage(argv[0], stderr, 1);
        }
    }
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        printf("[offset 0] Checking RDB file %s\n", argv[1]);
        fprintf(stderr, "Cannot open file %s: %s\n", argv[1], strerror(errno));
        printf("[offset 0] Check RDB returned error code 1 (0 means success)\n");
        return 1;
    }
    struct source source;
    source_init_fd(&source, fd);
    bool good = check_rdb(&source, argv[1], &options);
    source_free(&source);
    close(fd);
    if (options.output != stdout && fclose(options.output) != 0) {
        fprintf(stderr, "Cannot write the statistics: %s\n", strerror(errno));
        return 1;
    }
    return good ? 0 : 1;
}
