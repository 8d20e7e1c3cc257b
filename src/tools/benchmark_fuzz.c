/* benchmark_fuzz.c: --fuzz: sends random commands, to find commands that make the server fail.
 *
 * Commands and arguments are generated from the server's COMMAND DOCS. Excluded are commands that end the connection or
 * the server, that access other servers or files, or that have several replies, and PFSELFTEST, which keeps a server
 * busy for a second. The clients take turns in one thread, and requests do not depend on replies, so runs with the same
 * --seed send the same commands in the same order.
 *
 * It is a failure if the server exits or sends invalid RESP. Then the last command of each client is printed. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "tools/benchmark.h"
#include "tools/session.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum {
    ARGUMENTS_MAX = 64,
    TEXT_MAX = 1024,
    REPEAT_MAX = 3,
    REPLY_MS = 1000, /* the client of a command that blocks longer reconnects */
    CONNECT_MS = 5000,
    PROGRESS_NS = 1000000000,
};

struct fuzz_command {
    const char *name;             /* "get", "xgroup|create" */
    const struct resp_value *doc; /* NULL: CONFIG SET with a random option */
};

struct fuzz_client {
    struct session session;
    struct memory_output last; /* the last command, as text */
};

struct fuzz {
    const struct bench_options *options;
    struct session control;  /* its last reply is the documentation of all commands */
    struct session settings; /* its last reply is that of CONFIG GET * */
    struct fuzz_command *commands;
    int command_count, command_capacity;
    struct fuzz_client *clients;
    uint64_t sent, succeeded, errors, malformed, timeouts, reconnections;
};

/* The arguments of a command that is being generated. */
struct fuzz_request {
    struct slice argv[ARGUMENTS_MAX];
    char texts[ARGUMENTS_MAX][TEXT_MAX];
    int argc;
    const char *group; /* of the command; part of the names of its keys */
    int keys;          /* the value of its argument `numkeys`; -1: none */
};

/* --- The log --- */

static void say(const struct fuzz *fuzz, enum bench_fuzz_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(const struct fuzz *fuzz, enum bench_fuzz_level level, const char *format, ...) {
    static const char *const names[] = {"", "ERROR", "INFO ", "DEBUG"};
    if (level > fuzz->options->fuzz_level) return;
    char at[16];
    time_t now = time(NULL);
    struct tm parts;
    strftime(at, sizeof at, "%H:%M:%S", localtime_r(&now, &parts));
    printf("[%s] [%s] ", at, names[level]);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

/* --- Exclusions --- */

static bool is_excluded(const char *name) {
    static const char *const names[] = {
        "acl|deluser",  "acl|load",     "acl|save",     "acl|setuser",    "bgrewriteaof", "bgsave",     "client|kill",
        "client|pause", "client|reply", "config|set",   "config|rewrite", "debug",        "failover",   "migrate",
        "monitor",      "pfselftest",   "psubscribe",   "psync",          "punsubscribe", "quit",       "replconf",
        "replicaof",    "save",         "script|debug", "shutdown",       "slaveof",      "ssubscribe", "subscribe",
        "sunsubscribe", "sync",         "unsubscribe"};
    static const char *const families[] = {"cluster|", "module|", "sentinel|"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strncmp(name, families[i], strlen(families[i])) == 0) return true;
    return false;
}

/* Options that would disconnect the clients or write files. */
static bool is_excluded_option(const char *name) {
    static const char *const parts[] = {"acl",    "append", "auth",      "bind",   "busy",     "client",  "cluster",
                                        "dir",    "file",   "lua-time",  "pass",   "port",     "process", "replica",
                                        "rdma",   "slave",  "save",      "socket", "timeout",  "tls",     "maxclients",
                                        "script", "maxmem", "protected", "user",   "list-max", "proto",   "rdb"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

/* --- Arguments --- */

static void add_text(struct fuzz_request *request, const char *text, size_t len) {
    if (request->argc == ARGUMENTS_MAX) return;
    if (len > TEXT_MAX) len = TEXT_MAX;
    char *own = request->texts[request->argc];
    memcpy(own, text, len);
    request->argv[request->argc++] = slice_make(own, len);
}

static void add_format(struct fuzz_request *request, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_format(struct fuzz_request *request, const char *format, ...) {
    char text[TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_text(request, text, len < TEXT_MAX ? (size_t)len : TEXT_MAX - 1);
}

static bool chance(unsigned percent) {
    return random_below(100) < percent;
}

static const char *benchmark_fuzz_text_of(const struct resp_value *map, const char *key) {
    const struct resp_value *value = resp_value_get(map, key);
    return value && !resp_is_aggregate(value) && value->text.data ? value->text.data : "";
}

static bool has_flag(const struct resp_value *argument, const char *flag) {
    const struct resp_value *flags = resp_value_get(argument, "flags");
    for (size_t i = 0; flags && resp_is_aggregate(flags) && i < flags->count; i++)
        if (flags->children[i].text.data && strcmp(flags->children[i].text.data, flag) == 0) return true;
    return false;
}

static void add_bytes(struct fuzz_request *request) {
    char bytes[TEXT_MAX];
    size_t len = random_below(chance(10) ? sizeof bytes : 20);
    bool any = chance(30);
    for (size_t i = 0; i < len; i++) bytes[i] = any ? (char)random_below(256) : (char)('a' + random_below(26));
    add_text(request, bytes, len);
}

static void add_integer(struct fuzz_request *request, const char *name) {
    static const int64_t limits[] = {-1, 0, INT64_MAX, INT64_MIN};
    /* 0 would block forever. All clients wait while one blocks, so 1 to 3 ms. */
    if (strstr(name, "timeout") || strcmp(name, "milliseconds") == 0)
        add_format(request, "%d", 1 + (int)random_below(3));
    else if (strcmp(name, "cursor") == 0)
        add_format(request, "%d", chance(80) ? 0 : (int)random_below(100));
    else if (chance(5))
        add_format(request, "%lld", (long long)limits[random_below(4)]);
    else
        add_format(request, "%d", (int)random_below(50) - (chance(10) ? 25 : 0));
}

static void add_double(struct fuzz_request *request, const char *name) {
    static const char *const limits[] = {"inf", "-inf", "0", "1e308", "-0.0"};
    if (strstr(name, "timeout"))
        add_format(request, "0.00%d", 1 + (int)random_below(3));
    else if (chance(5))
        add_format(request, "%s", limits[random_below(5)]);
    else
        add_format(request, "%.4f", (double)random_below(1000000) / 10000 - (chance(20) ? 50 : 0));
}

static void add_string(struct fuzz_request *request, const char *name) {
    static const char *const ids[] = {"*", "0", "$", ">", "-", "+", "0-1", "(1-1"};
    if (strstr(name, "id") && chance(70))
        add_format(request, "%s", ids[random_below(8)]);
    else if ((strcmp(name, "min") == 0 || strcmp(name, "max") == 0 || strcmp(name, "start") == 0) && chance(70))
        add_format(request, "%s%d", chance(20) ? "(" : chance(20) ? "[" : "", (int)random_below(50));
    else if (chance(80))
        add_format(request, "%.20s-%d", name, (int)random_below(40));
    else
        add_bytes(request);
}

static void add_key(struct fuzz_request *request) {
    static const char *const groups[] = {"string", "list", "set", "sorted-set", "hash", "stream", "geo", "hyperloglog"};
    bool typed = chance(90);
    for (size_t i = 0; typed && i < sizeof groups / sizeof *groups; i++)
        if (strcmp(groups[i], request->group) == 0) {
            add_format(request, "%s:%d", groups[i], (int)random_below(5));
            return;
        }
    add_format(request, "%s:%d", groups[random_below(sizeof groups / sizeof *groups)], (int)random_below(5));
}

static void add_arguments(struct fuzz_request *request, const struct resp_value *arguments);

/* Adds one occurrence of an argument, without its token. */
static void add_value(struct fuzz_request *request, const struct resp_value *argument) {
    const char *type = benchmark_fuzz_text_of(argument, "type"), *name = benchmark_fuzz_text_of(argument, "name");
    const struct resp_value *parts = resp_value_get(argument, "arguments");
    if (strcmp(type, "oneof") == 0) {
        if (!parts || !parts->count) return;
        struct resp_value one = {
            .type = RESP_ARRAY, .children = &parts->children[random_below(parts->count)], .count = 1};
        add_arguments(request, &one);
    } else if (strcmp(type, "block") == 0) {
        if (parts) add_arguments(request, parts);
    } else if (strcmp(type, "key") == 0) {
        add_key(request);
    } else if (strcmp(name, "numkeys") == 0) {
        request->keys = 1 + (int)random_below(REPEAT_MAX);
        add_format(request, "%d", request->keys);
    } else if (strcmp(type, "integer") == 0) {
        add_integer(request, name);
    } else if (strcmp(type, "double") == 0) {
        add_double(request, name);
    } else if (strcmp(type, "unix-time") == 0) {
        add_format(request, "%lld", (long long)random_below(4000000000));
    } else if (strcmp(type, "pattern") == 0) {
        add_format(request, "%s", chance(50) ? "*" : "[a-m]*?:[^x]");
    } else if (strcmp(type, "pure-token") != 0) {
        add_string(request, name);
    }
}

static void add_argument(struct fuzz_request *request, const struct resp_value *argument) {
    const char *token = benchmark_fuzz_text_of(argument, "token"), *type = benchmark_fuzz_text_of(argument, "type");
    if (has_flag(argument, "optional") && chance(50)) return;
    int count = has_flag(argument, "multiple") ? 1 + (int)random_below(REPEAT_MAX) : 1;
    bool each = has_flag(argument, "multiple_token");
    if (strcmp(type, "key") == 0 && request->keys >= 0) {
        count = request->keys;
        request->keys = -1;
    }
    for (int i = 0; i < count; i++) {
        if (*token && (i == 0 || each)) add_format(request, "%s", token);
        add_value(request, argument);
    }
}

static void add_arguments(struct fuzz_request *request, const struct resp_value *arguments) {
    for (size_t i = 0; i < arguments->count; i++) add_argument(request, &arguments->children[i]);
}

/* --- Commands --- */

static void config_make(const struct fuzz *fuzz, struct fuzz_request *request) {
    const struct resp_value *all = &fuzz->settings.reader.value;
    add_text(request, "config", 6);
    add_text(request, "set", 3);
    size_t first = random_below(all->count / 2) * 2;
    for (size_t i = 0; i < all->count; i += 2) {
        const struct resp_value *pair = &all->children[(first + i) % all->count];
        if (!pair[0].text.data || !pair[1].text.data || is_excluded_option(pair[0].text.data)) continue;
        add_text(request, pair[0].text.data, pair[0].text.len);
        if (chance(50))
            add_text(request, pair[1].text.data, pair[1].text.len);
        else if (chance(30))
            add_format(request, "%s", chance(50) ? "yes" : "no");
        else
            add_integer(request, "");
        return;
    }
}

/* Makes the request malformed. */
static void request_damage(struct fuzz_request *request) {
    for (int changes = 1 + (int)random_below(3); changes > 0; changes--) {
        int at = (int)random_below((uint64_t)request->argc), end = request->argc;
        switch (random_below(5)) {
        case 0: /* removes an argument, but not the name */
            if (end == 1 || at == 0) break;
            for (int i = at; i + 1 < end; i++) request->argv[i] = request->argv[i + 1];
            request->argc--;
            break;
        case 1: /* adds some */
            for (int i = (int)random_below(5); i >= 0; i--) add_bytes(request);
            break;
        case 2: { /* swaps two */
            int other = (int)random_below((uint64_t)end);
            if (at == 0 || other == 0) break;
            struct slice moved = request->argv[at];
            request->argv[at] = request->argv[other];
            request->argv[other] = moved;
            break;
        }
        case 3: /* replaces one */
            if (at == 0 || end == ARGUMENTS_MAX) break;
            if (chance(50))
                add_bytes(request);
            else
                add_integer(request, "");
            request->argv[at] = request->argv[end];
            request->argc = end;
            break;
        default: /* truncates one */
            if (request->argv[at].len && at) request->argv[at].len = random_below(request->argv[at].len);
        }
    }
}

static void request_make(const struct fuzz *fuzz, struct fuzz_request *request) {
    const struct fuzz_command *command = &fuzz->commands[random_below((uint64_t)fuzz->command_count)];
    request->argc = 0;
    request->keys = -1;
    if (!command->doc) {
        config_make(fuzz, request);
    } else {
        const char *bar = strchr(command->name, '|');
        const struct resp_value *arguments = resp_value_get(command->doc, "arguments");
        request->group = benchmark_fuzz_text_of(command->doc, "group");
        add_text(request, command->name, bar ? (size_t)(bar - command->name) : strlen(command->name));
        if (bar) add_text(request, bar + 1, strlen(bar + 1));
        if (arguments) add_arguments(request, arguments);
    }
    if (fuzz->options->fuzz_malformed && chance(30)) request_damage(request);
}

static void command_add(struct fuzz *fuzz, const char *name, const struct resp_value *doc) {
    mem_grow(fuzz->commands, fuzz->command_count, fuzz->command_capacity, 256);
    fuzz->commands[fuzz->command_count++] = (struct fuzz_command){name, doc};
}

static void commands_add(struct fuzz *fuzz, const struct resp_value *docs) {
    for (size_t i = 0; i + 1 < docs->count; i += 2) {
        const struct resp_value *name = &docs->children[i], *doc = &docs->children[i + 1];
        const struct resp_value *subcommands = resp_value_get(doc, "subcommands");
        if (subcommands && resp_is_aggregate(subcommands))
            commands_add(fuzz, subcommands);
        else if (name->text.data && resp_is_aggregate(doc) && !is_excluded(name->text.data))
            command_add(fuzz, name->text.data, doc);
    }
}

/* --- Running --- */

static bool client_open(const struct fuzz *fuzz, struct session *session) {
    const struct bench_options *o = fuzz->options;
    char db[16];
    if (session_connect(session, &o->endpoint, CONNECT_MS) < 0 || !session_authenticate(session, &o->endpoint))
        return false;
    if (o->resp3 && !SESSION_CALL(session, "HELLO", "3")) return false;
    snprintf(db, sizeof db, "%lld", (long long)o->db);
    return !o->db || SESSION_CALL(session, "SELECT", db);
}

/* Keeps the command as text; non-printable bytes become \xHH. */
static void request_keep(struct fuzz_client *client, const struct fuzz_request *request) {
    memory_output_free(&client->last);
    memory_output_init(&client->last);
    for (int i = 0; i < request->argc; i++) {
        output_write(&client->last.out, i ? SLICE(" ") : SLICE(""));
        if (!request->argv[i].len) output_write(&client->last.out, SLICE("\"\""));
        for (size_t k = 0; k < request->argv[i].len; k++) {
            unsigned char c = (unsigned char)request->argv[i].data[k];
            char text[8];
            int len = snprintf(text, sizeof text, c > ' ' && c < 127 && c != '\\' ? "%c" : "\\x%02x", c);
            output_write(&client->last.out, slice_make(text, (size_t)len));
        }
    }
    output_write(&client->last.out, slice_make("", 1));
}

static int benchmark_fuzz_number_of(const struct fuzz *fuzz, const struct fuzz_client *client) {
    return (int)(client - fuzz->clients) + 1;
}

static void show_last(const struct fuzz *fuzz) {
    for (int64_t i = 0; i < fuzz->options->clients; i++) {
        struct slice last = memory_output_slice(&fuzz->clients[i].last);
        if (last.len) say(fuzz, FUZZ_ERROR, "Last command of client %lld: %s", (long long)i + 1, last.data);
    }
}

/* Called if there is no reply: the command blocks, the server has closed the connection, or it has failed. Reconnects.
 * False: the server has failed. */
static bool client_recover(struct fuzz *fuzz, struct fuzz_client *client) {
    bool malformed = strncmp(client->session.error, "Protocol error", 14) == 0;
    if (malformed) {
        fuzz->malformed++;
        say(fuzz, FUZZ_ERROR, "%s", client->session.error);
        show_last(fuzz);
    } else {
        bool open = session_is_open(&client->session);
        fuzz->timeouts += open;
        fuzz->reconnections += !open;
        say(fuzz, FUZZ_DEBUG, "[client %d] %s: %s", benchmark_fuzz_number_of(fuzz, client),
            open ? "No reply" : client->session.error, memory_output_slice(&client->last).data);
    }
    if (client_open(fuzz, &client->session)) return !malformed;
    say(fuzz, FUZZ_ERROR, "The server does not answer: %s", client->session.error);
    show_last(fuzz);
    return false;
}

static bool client_read(struct fuzz *fuzz, struct fuzz_client *client) {
    struct resp_value *reply;
    do reply = session_read(&client->session, REPLY_MS);
    while (reply && (reply->type == RESP_PUSH || reply->type == RESP_ATTRIBUTE));
    if (!reply) return client_recover(fuzz, client);
    bool error = reply->type == RESP_ERROR;
    fuzz->succeeded += !error;
    fuzz->errors += error;
    if (resp_is_aggregate(reply))
        say(fuzz, FUZZ_DEBUG, "[client %d] -> (%zu elements)", benchmark_fuzz_number_of(fuzz, client), reply->count);
    else
        say(fuzz, FUZZ_DEBUG, "[client %d] -> %.100s", benchmark_fuzz_number_of(fuzz, client),
            reply->text.data ? reply->text.data : "(nil)");
    return true;
}

/* Each client sends a command, then each reads the reply. */
static bool round_run(struct fuzz *fuzz, int64_t count) {
    static struct fuzz_request request;
    for (int64_t i = 0; i < count; i++) {
        request_make(fuzz, &request);
        request_keep(&fuzz->clients[i], &request);
        const char *text = memory_output_slice(&fuzz->clients[i].last).data;
        say(fuzz, FUZZ_DEBUG, "[client %lld] send Command: %s", (long long)i + 1, text ? text : "");
        session_send(&fuzz->clients[i].session, request.argc, request.argv);
        fuzz->sent++;
    }
    for (int64_t i = 0; i < count; i++)
        if (!client_read(fuzz, &fuzz->clients[i])) return false;
    return true;
}

static void statistics_show(const struct fuzz *fuzz) {
    uint64_t replies = fuzz->succeeded + fuzz->errors;
    say(fuzz, FUZZ_INFO, "=== FINAL STATISTICS ===");
    say(fuzz, FUZZ_INFO, "Total commands sent: %llu", (unsigned long long)fuzz->sent);
    say(fuzz, FUZZ_INFO, "Success replies: %llu", (unsigned long long)fuzz->succeeded);
    say(fuzz, FUZZ_INFO, "Error replies: %llu", (unsigned long long)fuzz->errors);
    say(fuzz, FUZZ_INFO, "Malformed replies: %llu", (unsigned long long)fuzz->malformed);
    say(fuzz, FUZZ_INFO, "Commands without a reply in %d ms: %llu", REPLY_MS, (unsigned long long)fuzz->timeouts);
    say(fuzz, FUZZ_INFO, "Connections closed by the server: %llu", (unsigned long long)fuzz->reconnections);
    say(fuzz, FUZZ_INFO, "Success rate: %.2f%%", replies ? 100.0 * (double)fuzz->succeeded / (double)replies : 0.0);
}

static bool commands_run(struct fuzz *fuzz) {
    const struct bench_options *o = fuzz->options;
    uint64_t begin = clock_monotonic_ns(), shown = begin, total = (uint64_t)o->requests;
    while (fuzz->sent < total) {
        uint64_t now = clock_monotonic_ns(), left = total - fuzz->sent;
        if (o->duration && now - begin >= (uint64_t)o->duration * 1000000000) break;
        if (o->fuzz_level >= FUZZ_INFO && now - shown >= PROGRESS_NS) {
            shown = now;
            printf("Progress: %llu commands, %.1f rps\n", (unsigned long long)fuzz->sent,
                   (double)fuzz->sent * 1e9 / (double)(now - begin));
            fflush(stdout);
        }
        if (!round_run(fuzz, left < (uint64_t)o->clients ? (int64_t)left : o->clients)) return false;
    }
    return true;
}

/* Reads COMMAND DOCS and the options, and connects the clients. False: the error is in a session. */
static bool prepare(struct fuzz *fuzz) {
    if (!client_open(fuzz, &fuzz->control)) return false;
    const struct resp_value *docs = SESSION_CALL(&fuzz->control, "COMMAND", "DOCS");
    if (!docs || !resp_is_aggregate(docs)) return false;
    commands_add(fuzz, docs);
    if (fuzz->options->fuzz_config) {
        if (!client_open(fuzz, &fuzz->settings)) return false;
        const struct resp_value *settings = SESSION_CALL(&fuzz->settings, "CONFIG", "GET", "*");
        if (!settings || !resp_is_aggregate(settings) || settings->count < 2) return false;
        for (int i = fuzz->command_count / 20; i >= 0; i--) command_add(fuzz, "config|set", NULL);
    }
    for (int64_t i = 0; i < fuzz->options->clients; i++)
        if (!client_open(fuzz, &fuzz->clients[i].session)) return false;
    return fuzz->command_count > 0;
}

int fuzz_run(const struct bench_options *o) {
    struct fuzz fuzz = {.options = o};
    random_seed((uint64_t)o->seed);
    session_init(&fuzz.control);
    session_init(&fuzz.settings);
    fuzz.clients = mem_calloc((size_t)o->clients, sizeof *fuzz.clients);
    for (int64_t i = 0; i < o->clients; i++) {
        session_init(&fuzz.clients[i].session);
        memory_output_init(&fuzz.clients[i].last);
    }
    bool good = prepare(&fuzz);
    if (!good) {
        fprintf(stderr, "Could not connect, or the server does not describe its commands: %s\n",
                fuzz.control.error[0] ? fuzz.control.error : fuzz.settings.error);
    } else {
        if (o->fuzz_level >= FUZZ_INFO)
            printf("Running fuzzer with %lld clients, seed %lld\n", (long long)o->clients, (long long)o->seed);
        good = commands_run(&fuzz);
        statistics_show(&fuzz);
    }
    for (int64_t i = 0; i < o->clients; i++) {
        session_free(&fuzz.clients[i].session);
        memory_output_free(&fuzz.clients[i].last);
    }
    mem_free(fuzz.clients);
    mem_free(fuzz.commands);
    session_free(&fuzz.settings);
    session_free(&fuzz.control);
    return good ? 0 : 1;
}
