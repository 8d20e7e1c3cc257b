/* run_main.c: valkey-rdma-run, which starts a program with its TCP connections to a Valkey server over RDMA.
 *
 * It resolves the mappings, looks at the program for what would keep the library out, sets the environment (mapping.c)
 * and LD_PRELOAD, and becomes the program: signals and the exit status are the program's own. */
#include "lib/system/version.h"
#include <link.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char usage[] =
    "Usage: valkey-rdma-run [OPTIONS] [--map HOST:PORT[=RDMA-HOST:PORT]]... COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs COMMAND with its TCP connections to the mapped addresses over RDMA. The program is not changed. A "
    "connection\n"
    "that cannot be made over RDMA is made over TCP, which is said once on standard error.\n"
    "\n"
    "  --map HOST:PORT[=RDMA-HOST:PORT]\n"
    "                     Connections to HOST:PORT go to the RDMA listener RDMA-HOST:PORT; default: the same address\n"
    "                     and port. HOST may be a name, an IP address, [an IPv6 address] or * for any host. May be\n"
    "                     given several times. Default: *:6379\n"
    "  --require          A connection that cannot be made over RDMA fails; a program that cannot be run over RDMA is\n"
    "                     not started\n"
    "  --status FILE      Append a line to FILE whenever connections of a mapping begin to use RDMA or TCP\n"
    "  --quiet            Nothing on standard error\n"
    "  --timeout MS       Time for connecting over RDMA. Default: 2000\n"
    "  --spin US          Time to wait actively before a thread sleeps. Default: 50\n"
    "  --help             Show this text\n"
    "  --version          Show the version\n";

static bool required, quiet;
static char list[16 * 1024];

/* --- Mappings --- */

/* Splits "HOST:PORT" or "[HOST]:PORT" in place. */
static bool split(char *text, char **host, char **port) {
    char *colon = strrchr(text, ':'), *end;
    if (!colon || colon == text) return false;
    *colon = '\0';
    *port = colon + 1;
    long number = strtol(*port, &end, 10);
    if (*end || number < 1 || number > 65535) return false;
    *host = text;
    size_t len = strlen(text);
    if (text[0] == '[' && text[len - 1] == ']') {
        text[len - 1] = '\0';
        (*host)++;
    } else if (strchr(text, ':'))
        return false;
    return **host != '\0';
}

static bool launcher_append(const char *from, const char *port, const char *to, const char *to_port) {
    size_t used = strlen(list), left = sizeof list - used;
    if (snprintf(list + used, left, "%s%s:%s=%s:%s", used ? " " : "", from, port, to, to_port) < (int)left) return true;
    fprintf(stderr, "valkey-rdma-run: the mappings are longer than %zu bytes\n", sizeof list);
    return false;
}

/* Adds the mapping that `text` names. `copy` is a copy of it, which is split in place. */
static bool add_copied_mapping(const char *text, char *copy) {
    char *target = strchr(copy, '='), *host, *port, *to = "", *to_port;
    if (target) *target++ = '\0';
    if (!split(copy, &host, &port) || (target && !split(target, &to, &to_port))) {
        fprintf(stderr, "valkey-rdma-run: --map %s is not HOST:PORT[=RDMA-HOST:PORT]\n", text);
        return false;
    }
    if (!target) to_port = port;
    if (strcmp(host, "*") == 0) return launcher_append("*", port, to, to_port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(host, NULL, &hints, &found);
    if (error) {
        fprintf(stderr, "valkey-rdma-run: --map %s: %s\n", text, gai_strerror(error));
        return false;
    }
    bool added = true;
    for (const struct addrinfo *one = found; one && added; one = one->ai_next) {
        char ip[INET6_ADDRSTRLEN];
        if (getnameinfo(one->ai_addr, one->ai_addrlen, ip, sizeof ip, NULL, 0, NI_NUMERICHOST) != 0) continue;
        added = launcher_append(ip, port, to, to_port);
    }
    freeaddrinfo(found);
    return added;
}

static bool add_mapping(const char *text) {
    char *copy = strdup(text);
    if (!copy) {
        fprintf(stderr, "valkey-rdma-run: %s\n", strerror(errno));
        return false;
    }
    bool added = add_copied_mapping(text, copy);
    free(copy);
    return added;
}

/* --- The program --- */

static char *find_program(const char *name, char path[static PATH_MAX]) {
    if (strchr(name, '/')) return access(name, X_OK) == 0 ? strcpy(path, name) : NULL;
    const char *directories = getenv("PATH");
    if (!directories) directories = "/usr/local/bin:/usr/bin:/bin";
    while (*directories) {
        size_t len = strcspn(directories, ":");
        struct stat info;
        snprintf(path, PATH_MAX, "%.*s/%s", len ? (int)len : 1, len ? directories : ".", name);
        if (access(path, X_OK) == 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode)) return path;
        directories += len + (directories[len] == ':');
    }
    return NULL;
}

/* Reads the file's tables of an ELF program of this machine's word size. */
static const char *look_at_elf(int fd, const unsigned char *head) {
    ElfW(Ehdr) elf;
    memcpy(&elf, head, sizeof elf);
    if (head[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)) return "is a program of another word size";
    bool interpreter = false;
    for (unsigned i = 0; i < elf.e_phnum && elf.e_phentsize == sizeof(ElfW(Phdr)); i++) {
        ElfW(Phdr) part;
        if (pread(fd, &part, sizeof part, (off_t)(elf.e_phoff + i * sizeof part)) != sizeof part) break;
        if (part.p_type == PT_INTERP) interpreter = true;
    }
    ElfW(Shdr) names, section;
    bool go = false;
    if (elf.e_shoff && elf.e_shentsize == sizeof section &&
        pread(fd, &names, sizeof names, (off_t)(elf.e_shoff + elf.e_shstrndx * sizeof names)) == sizeof names)
        for (unsigned i = 0; i < elf.e_shnum && !go; i++) {
            char name[16];
            if (pread(fd, &section, sizeof section, (off_t)(elf.e_shoff + i * sizeof section)) != sizeof section) break;
            if (section.sh_name >= names.sh_size) continue;
            ssize_t got = pread(fd, name, sizeof name - 1, (off_t)(names.sh_offset + section.sh_name));
            if (got < 0) break;
            name[got] = '\0';
            go = strcmp(name, ".go.buildinfo") == 0;
        }
    if (go) return "is a Go program, which makes system calls without the C library";
    if (!interpreter) return "is statically linked";
    return NULL;
}

/* The reason why the library cannot be loaded into the program or sees none of its calls; NULL: none is known. */
static const char *look_at(const char *path, char interpreter[static 256]) {
    unsigned char head[256] = {0};
    struct stat info;
    interpreter[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    const char *reason = NULL;
    ssize_t got = read(fd, head, sizeof head - 1);
    if (fstat(fd, &info) == 0 &&
        ((info.st_mode & S_ISUID && info.st_uid != geteuid()) || (info.st_mode & S_ISGID && info.st_gid != getegid())))
        reason = "is setuid or setgid, and the loader ignores LD_PRELOAD";
    else if (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
        reason = "has file capabilities, and the loader ignores LD_PRELOAD";
    else if (got > (ssize_t)sizeof(ElfW(Ehdr)) && memcmp(head, ELFMAG, SELFMAG) == 0)
        reason = look_at_elf(fd, head);
    else if (got > 2 && head[0] == '#' && head[1] == '!') {
        const char *text = (const char *)head + 2;
        text += strspn(text, " \t");
        snprintf(interpreter, 256, "%.*s", (int)strcspn(text, " \t\n"), text);
    }
    close(fd);
    return reason;
}

static bool check_program(const char *path) {
    char interpreter[256], next[256];
    const char *reason = look_at(path, interpreter), *which = path;
    if (!reason && interpreter[0]) reason = look_at(which = interpreter, next);
    if (!reason) return true;
    if (!quiet || required)
        fprintf(stderr, "valkey-rdma-run: %s %s: %s\n", which, reason,
                required ? "it cannot use RDMA (--require)" : "its connections stay TCP");
    return !required;
}

/* --- The library --- */

/* False, and no path: it is not there. */
static bool find_library(char path[static PATH_MAX]) {
    char here[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", here, sizeof here - 1);
    if (len <= 0) return false;
    here[len] = '\0';
    *strrchr(here, '/') = '\0';
    bool found = snprintf(path, PATH_MAX, "%s/libvalkey-rdma-run.so", here) < PATH_MAX && access(path, R_OK) == 0;
    if (!found) path[0] = '\0';
    return found;
}

static bool is_number(const char *text, unsigned long most) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && value <= most;
}

int main(int argc, char **argv) {
    static char library[PATH_MAX], path[PATH_MAX], preload[3 * PATH_MAX], status[PATH_MAX];
    const char *timeout = "2000", *spin = "50", *status_file = NULL;
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool takes = !strcmp(option, "--map") || !strcmp(option, "--status") || !strcmp(option, "--timeout") ||
                     !strcmp(option, "--spin");
        if (!strcmp(option, "--help") || !strcmp(option, "-h")) {
            fputs(usage, stdout);
            return 0;
        } else if (!strcmp(option, "--version") || !strcmp(option, "-v")) {
            printf("valkey-rdma-run %s\n", PROJECT_VERSION);
            return 0;
        } else if (!strcmp(option, "--")) {
            i++;
            break;
        } else if (!strcmp(option, "--require"))
            required = true;
        else if (!strcmp(option, "--quiet"))
            quiet = true;
        else if (!takes) {
            fprintf(stderr, "valkey-rdma-run: unknown option %s; --help shows all\n", option);
            return 2;
        } else if (!value) {
            fprintf(stderr, "valkey-rdma-run: %s needs an argument\n", option);
            return 2;
        } else {
            i++;
            if (!strcmp(option, "--map")) {
                if (!add_mapping(value)) return 2;
                continue;
            } else if (!strcmp(option, "--status")) {
                status_file = value;
                continue;
            }
            unsigned long most = !strcmp(option, "--timeout") ? 3600000 : 1000000;
            if (!is_number(value, most)) {
                fprintf(stderr, "valkey-rdma-run: %s %s is not a number up to %lu\n", option, value, most);
                return 2;
            }
            *(!strcmp(option, "--timeout") ? &timeout : &spin) = value;
        }
    }
    if (i >= argc) {
        if (argc > 1) fputs("valkey-rdma-run: the command is missing\n\n", stderr);
        fputs(usage, stderr);
        return 2;
    }
    if (!list[0] && !add_mapping("*:6379")) return 2;
    if (!find_library(library)) {
        fprintf(stderr, "valkey-rdma-run: libvalkey-rdma-run.so is missing beside this program%s\n",
                required ? "" : ": connections stay TCP");
        if (required) return 127;
    }
    if (status_file) {
        int fd = open(status_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (fd < 0 || !realpath(status_file, status)) {
            fprintf(stderr, "valkey-rdma-run: --status %s: %s\n", status_file, strerror(errno));
            return 2;
        }
        close(fd);
    }
    if (!find_program(argv[i], path)) {
        bool exists = strchr(argv[i], '/') && access(argv[i], F_OK) == 0;
        fprintf(stderr, "valkey-rdma-run: %s %s\n", argv[i], exists ? "is not executable" : "was not found");
        return exists ? 126 : 127;
    }
    if (!check_program(path)) return 126;
    const char *others = getenv("LD_PRELOAD");
    snprintf(preload, sizeof preload, "%s%s%s", library, others && *others ? ":" : "", others ? others : "");
    if (library[0]) setenv("LD_PRELOAD", preload, 1);
    setenv("VALKEY_RDMA_RUN_MAP", list, 1);
    setenv("VALKEY_RDMA_RUN_REQUIRE", required ? "1" : "0", 1);
    setenv("VALKEY_RDMA_RUN_QUIET", quiet ? "1" : "0", 1);
    setenv("VALKEY_RDMA_RUN_STATUS", status, 1);
    setenv("VALKEY_RDMA_RUN_TIMEOUT", timeout, 1);
    setenv("VALKEY_RDMA_RUN_SPIN", spin, 1);
    execv(path, argv + i);
    fprintf(stderr, "valkey-rdma-run: %s: %s\n", path, strerror(errno));
    return errno == ENOENT ? 127 : 126;
}
