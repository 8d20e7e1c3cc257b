/* cli_connection.c: the connection of valkey-cli: sends commands and shows replies.
 *
 * The connection is opened on first use. If it fails, the error is printed and the next command reopens it. Without a
 * prompt, as with -r, a connection that the server closed while idle is reopened silently. The program tracks the state
 * of the connection (database, protocol, transaction, subscriptions) from the commands and their replies, to show it in
 * the prompt and to restore it after a reconnect. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "tools/cli_docs.h"
#include "tools/cli_format.h"
#include "tools/cli_line.h"
#include "tools/cli_modes.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { REDIRECTIONS_MAX = 16, SLOW_US = 500 * 1000, QUIET_MS = 100, INPUT_LOOK_MS = 10 };

volatile bool cli_interrupted;
static void on_interrupt(int signal_number) {
    cli_interrupted = true;
}

void cli_catch_interrupt(struct cli *cli, bool on) {
    struct sigaction action = {.sa_handler = on ? on_interrupt : SIG_DFL};
    cli_interrupted = false;
    sigaction(SIGINT, &action, NULL);
    cli->session.interrupt = on ? &cli_interrupted : NULL;
}

/* --- Connecting --- */

static void server_name(const struct cli *cli, char *text, size_t size) {
    endpoint_format(&cli->options.endpoint, text, size);
}

static bool reply_failed(struct cli *cli, const struct resp_value *reply, const char *what) {
    if (reply && reply->type != RESP_ERROR) return false;
    fprintf(stderr, "%s failed: %s\n", what, reply ? reply->text.data : cli->session.error);
    return true;
}

/* False: a command failed, and the following ones were not sent. */
static bool greet(struct cli *cli) {
    struct session *s = &cli->session;
    const struct endpoint *e = &cli->options.endpoint;
    char text[48];
    if (!session_authenticate(s, e)) {
        fprintf(stderr, "AUTH failed: %s\n", s->error);
        return false;
    }
    if (cli->options.db) {
        snprintf(text, sizeof text, "%d", cli->options.db);
        char what[64];
        snprintf(what, sizeof what, "SELECT %s", text);
        if (reply_failed(cli, SESSION_CALL(s, "SELECT", text), what)) return false;
        cli->db = cli->options.db;
    }
    if (cli->options.protocol == 3) {
        /* --json only prefers RESP3. */
        if (reply_failed(cli, SESSION_CALL(s, "HELLO", "3"), "HELLO 3")) return !cli->options.protocol_given;
        cli->protocol = 3;
    }
    return true;
}

static void transaction_end(struct cli *cli);
int cli_connect(struct cli *cli, bool again, bool loud) {
    struct session *s = &cli->session;
    if (s->conn && !again) {
        event_loop_turn(s->loop, 0); /* detects whether the server has closed the connection */
        if (session_is_open(s)) return 0;
    }
    cli->db = 0, cli->protocol = 2;
    transaction_end(cli);
    cli->subscribed = false;
    cli->subscriptions = cli->shard_subscriptions = 0;
    if (session_connect(s, &cli->options.endpoint, cli->options.timeout_ms) < 0) {
        char name[160];
        server_name(cli, name, sizeof name);
        if (loud) fprintf(stderr, "Could not connect to Valkey at %s: %s\n", name, s->error);
        return -1;
    }
    return greet(cli) ? 0 : 1;
}

void cli_connect_or_exit(struct cli *cli) {
    if (cli_connect(cli, false, true) != 0) exit(1);
}

static struct resp_value *reply_or_exit(struct cli *cli, struct resp_value *reply) {
    if (reply) return reply;
    fprintf(stderr, "\nI/O error\n%s\n", cli->session.error);
    exit(1);
}

struct resp_value *cli_call(struct cli *cli, int argc, const struct slice *argv) {
    return reply_or_exit(cli, session_call(&cli->session, argc, argv));
}

struct resp_value *cli_call_words(struct cli *cli, int count, const char *const *words) {
    return reply_or_exit(cli, session_call_words(&cli->session, count, words));
}

struct slice cli_text(const struct resp_value *reply) {
    if (reply->type != RESP_ERROR) return reply->text.data ? reply->text : SLICE("");
    cli_refused("ERROR", reply);
}

void cli_refused(const char *what, const struct resp_value *reply) {
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", what, reply->text.data);
    exit(1);
}

void cli_prompt(const struct cli *cli, char *text, size_t size) {
    if (!cli->session.conn || cli->debugging) {
        snprintf(text, size, cli->debugging ? "lua debugger> " : "not connected> ");
        return;
    }
    char name[160], db[16] = "";
    server_name(cli, name, sizeof name);
    if (cli->db) snprintf(db, sizeof db, "[%d]", cli->db);
    const struct endpoint *e = &cli->options.endpoint;
    snprintf(text, size, "%s%s%s%s%s> ",
             e->rdma     ? "rdma://"
             : e->socket ? "valkey "
                         : "",
             name, db, cli->in_transaction ? "(TX)" : "", cli->subscribed ? "(subscribed mode)" : "");
}

struct slice cli_read_stdin(void) {
    size_t len = 0, capacity = 64 * 1024;
    char *data = mem_alloc(capacity);
    ssize_t got;
    while ((got = read(STDIN_FILENO, data + len, capacity - len)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        len += (size_t)got;
        if (len == capacity) data = mem_realloc(data, capacity *= 2);
    }
    return (struct slice){data, len};
}

/* --- Effects of a command on the connection --- */

static bool command_is(int argc, const struct slice *argv, const char *name, const char *sub) {
    return argc >= (sub ? 2 : 1) && slice_is(argv[0], name) && (!sub || slice_is(argv[1], sub));
}

static bool is_subscribing(int argc, const struct slice *argv) {
    static const char *const names[] = {"subscribe",   "psubscribe",   "ssubscribe",
                                        "unsubscribe", "punsubscribe", "sunsubscribe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (command_is(argc, argv, names[i], NULL)) return true;
    }
    return false;
}

/* Commands whose replies are text for people, and are printed raw. */
static bool is_text_command(int argc, const struct slice *argv) {
    static const char *const names[][2] = {
        {"info", NULL},
        {"lolwut", NULL},
        {"debug", "htstats"},
        {"debug", "htstats-key"},
        {"debug", "client-eviction"},
        {"memory", "malloc-stats"},
        {"memory", "doctor"},
        {"cluster", "nodes"},
        {"cluster", "info"},
        {"client", "list"},
        {"client", "info"},
        {"latency", "graph"},
        {"latency", "doctor"},
        {"proxy", "info"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (command_is(argc, argv, names[i][0], names[i][1])) return true;
    }
    return false;
}

static void db_follow(struct cli *cli, int db) {
    cli->db = cli->options.db = db; /* selected again after a reconnect */
}

static void transaction_end(struct cli *cli) {
    cli->in_transaction = false;
    mem_free(cli->queued_selects);
    cli->queued_selects = NULL;
    cli->queued = cli->queued_selects_count = 0;
}

/* A SELECT in a transaction takes effect with EXEC, if it does not fail there. */
static void transaction_queue(struct cli *cli, int argc, const struct slice *argv) {
    size_t position = cli->queued++;
    int64_t number;
    if (argc != 2 || !command_is(argc, argv, "select", NULL) || !parse_int64(argv[1], &number)) return;
    cli->queued_selects =
        mem_realloc(cli->queued_selects, (cli->queued_selects_count + 1) * sizeof *cli->queued_selects);
    cli->queued_selects[cli->queued_selects_count++] = (struct queued_select){position, (int)number};
}
static void transaction_executed(struct cli *cli, const struct resp_value *reply) {
    for (size_t i = 0; reply->type == RESP_ARRAY && i < cli->queued_selects_count; i++) {
        const struct queued_select *select = &cli->queued_selects[i];
        if (select->position < reply->count && reply->children[select->position].type != RESP_ERROR)
            db_follow(cli, select->db);
    }
}

static void state_follow(struct cli *cli, int argc, const struct slice *argv, const struct resp_value *reply) {
    if (reply->type == RESP_ERROR) {
        if (command_is(argc, argv, "exec", NULL)) transaction_end(cli);
        return;
    }
    int64_t number;
    bool executed = command_is(argc, argv, "exec", NULL);
    if (cli->in_transaction && reply->type == RESP_STATUS && slice_is(reply->text, "QUEUED")) {
        transaction_queue(cli, argc, argv);
        return;
    }
    if (executed) transaction_executed(cli, reply);
    if (executed || command_is(argc, argv, "discard", NULL) || command_is(argc, argv, "reset", NULL))
        transaction_end(cli);
    else if (command_is(argc, argv, "multi", NULL))
        cli->in_transaction = true;
    if (argc == 2 && command_is(argc, argv, "select", NULL) && parse_int64(argv[1], &number)) {
        db_follow(cli, (int)number);
    } else if (argc >= 2 && command_is(argc, argv, "hello", NULL) && parse_int64(argv[1], &number)) {
        cli->protocol = cli->options.protocol = (int)number;
    } else if (command_is(argc, argv, "auth", NULL) && argc <= 3) {
        struct endpoint *e = &cli->options.endpoint;
        text_set(&e->user, argc == 3 ? argv[1].data : NULL);
        text_set(&e->password, argv[argc - 1].data);
    } else if (command_is(argc, argv, "reset", NULL)) {
        db_follow(cli, 0);
        cli->protocol = 2;
        cli->subscribed = false;
        cli->subscriptions = cli->shard_subscriptions = 0;
    }
}

enum pubsub { PUBSUB_NO, PUBSUB_MESSAGE, PUBSUB_ACKNOWLEDGED };

/* Updates the number of subscriptions if the value confirms one. */
static enum pubsub pubsub_follow(struct cli *cli, const struct resp_value *v) {
    if ((v->type != RESP_PUSH && v->type != RESP_ARRAY) || v->count < 3) return PUBSUB_NO;
    struct slice kind = v->children[0].text;
    const struct resp_value *last = &v->children[2];
    static const char *const acks[] = {"subscribe",   "psubscribe",   "ssubscribe",
                                       "unsubscribe", "punsubscribe", "sunsubscribe"};
    for (size_t i = 0; i < sizeof acks / sizeof *acks; i++) {
        if (!slice_is(kind, acks[i]) || last->type != RESP_INTEGER) continue;
        /* The server counts shard channels apart from channels and patterns. */
        *(i % 3 == 2 ? &cli->shard_subscriptions : &cli->subscriptions) = last->integer;
        cli->subscribed = cli->subscriptions + cli->shard_subscriptions > 0;
        return PUBSUB_ACKNOWLEDGED;
    }
    return slice_is(kind, "message") || slice_is(kind, "pmessage") || slice_is(kind, "smessage") ? PUBSUB_MESSAGE
                                                                                                 : PUBSUB_NO;
}

/* --- Showing --- */

void cli_show(struct memory_output *m) {
    struct slice text = memory_output_slice(m);
    if (text.len) fwrite(text.data, 1, text.len, stdout);
    fflush(stdout);
    memory_output_free(m);
}

static void show_reply(const struct cli *cli, const struct resp_value *reply, bool as_text) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    const struct cli_options *o = &cli->options;
    if (as_text)
        format_raw(&m.out, reply, o->bulk_delimiter);
    else
        format_reply(&m.out, reply, o, o->output);
    cli_show(&m);
}

/* While there are subscriptions, every push message is shown as a reply. */
static void show_push(struct cli *cli, const struct resp_value *push) {
    if (pubsub_follow(cli, push) != PUBSUB_NO || cli->subscribed) {
        show_reply(cli, push, false);
        return;
    }
    if (!cli->options.show_pushes) return;
    struct memory_output m = MEMORY_OUTPUT_INIT;
    format_push(&m.out, push, &cli->options);
    cli_show(&m);
}

/* Attributes are not printed, because scripts that parse the output do not expect them. */
static void attributes_drop(struct resp_value *v) {
    size_t kept = 0;
    for (size_t i = 0; i < v->count; i++) {
        if (v->children[i].type == RESP_ATTRIBUTE) {
            resp_value_free(&v->children[i]);
            continue;
        }
        attributes_drop(&v->children[i]);
        if (kept != i) v->children[kept] = v->children[i];
        kept++;
    }
    v->count = kept;
}

/* Returns the next reply, and shows everything before it. NULL: the connection failed, or the wait was interrupted. */
static struct resp_value *reply_next(struct cli *cli, bool subscribing) {
    for (;;) {
        struct resp_value *v = session_read(&cli->session, -1);
        if (!v) return NULL;
        if (v->type == RESP_ATTRIBUTE) continue;
        if (v->type == RESP_PUSH && !(subscribing && pubsub_follow(cli, v) == PUBSUB_ACKNOWLEDGED)) {
            show_push(cli, v);
            continue;
        }
        /* In RESP2 a message looks like a reply. */
        if (v->type == RESP_ARRAY && cli->subscribed && pubsub_follow(cli, v) == PUBSUB_MESSAGE) {
            show_reply(cli, v, false);
            continue;
        }
        attributes_drop(v);
        return v;
    }
}

static int connection_failed(struct cli *cli) {
    if (cli_interrupted) {
        printf("\nClosing current connection. Ready to reconnect to Valkey server... \n");
        cli_interrupted = false;
    } else if (!cli->session.conn || *cli->session.error) {
        fflush(stdout);
        fprintf(stderr, "Error: %s\n", cli->session.error);
    }
    session_close(&cli->session);
    transaction_end(cli);
    cli->subscribed = false;
    return -1;
}

/* --- Streams: MONITOR and subscriptions --- */

static int monitor_follow(struct cli *cli) {
    struct resp_value *v;
    while ((v = reply_next(cli, true))) show_reply(cli, v, false);
    return connection_failed(cli);
}

static bool input_is_waiting(const struct cli *cli) {
    if (!cli->interactive) return false;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return line_is_waiting(cli->editor) || poll(&input, 1, 0) > 0;
}

static void notice_show(const struct cli *cli) {
    if (!cli->interactive || !cli->options.tty_output) return;
    const char *term = getenv("TERM");
    bool colour = term && strstr(term, "xterm");
    printf("%sReading messages... (press Ctrl-C to quit or any key to type command)\r%s", colour ? "\033[1;90m" : "",
           colour ? "\033[0m" : "");
    fflush(stdout);
}

static void notice_erase(const struct cli *cli) {
    if (!cli->interactive || !cli->options.tty_output) return;
    printf("\033[K");
    fflush(stdout);
}

/* Shows messages until there is input at the prompt, or the connection ends. */
static int messages_follow(struct cli *cli) {
    struct session *s = &cli->session;
    notice_show(cli);
    while (cli->subscribed) {
        if (input_is_waiting(cli)) break;
        struct resp_value *v = session_read(s, cli->interactive ? INPUT_LOOK_MS : -1);
        if (v) {
            notice_erase(cli);
            if (v->type == RESP_PUSH) {
                show_push(cli, v);
            } else {
                pubsub_follow(cli, v); /* the last subscription may have ended */
                show_reply(cli, v, false);
            }
            if (cli->subscribed) notice_show(cli);
        } else if (cli_interrupted || !session_is_open(s)) {
            notice_erase(cli);
            return connection_failed(cli);
        }
    }
    notice_erase(cli);
    return 0;
}

/* --- Commands --- */

/* Follows -MOVED and -ASK with -c. 1: send the command again, to the new node; 0: not a redirection; -1: cannot connect
 * to the new node. */
static int redirect(struct cli *cli, const struct resp_value *reply) {
    if (!cli->options.cluster || reply->type != RESP_ERROR) return 0;
    bool ask = strncmp(reply->text.data, "ASK ", 4) == 0;
    int slot, port;
    char host[108] = "";
    const char *text = reply->text.data + (ask ? 4 : 6);
    if (!ask && strncmp(reply->text.data, "MOVED ", 6) != 0) return 0;
    const char *space = strchr(text, ' '), *colon = strrchr(text, ':');
    if (!space || !colon || colon < space || sscanf(text, "%d", &slot) != 1 || sscanf(colon + 1, "%d", &port) != 1)
        return 0;
    snprintf(host, sizeof host, "%.*s", (int)(colon - space - 1), space + 1);
    struct endpoint *e = &cli->options.endpoint;
    if (*host && *host != '?') text_set(&e->host, host);
    text_set(&e->socket, NULL);
    e->port = port;
    if (cli->interactive) printf("-> Redirected to slot [%d] located at %s:%d\n", slot, e->host, e->port);
    if (cli_connect(cli, true, true) < 0) return -1;
    if (ask && !SESSION_CALL(&cli->session, "ASKING")) return connection_failed(cli);
    return 1;
}

static int replies_expected(int argc, const struct slice *argv) {
    if (command_is(argc, argv, "client", "reply") && argc == 3 && !slice_is(argv[2], "on")) return 0;
    return is_subscribing(argc, argv) && argc > 2 ? argc - 1 : 1;
}

/* The server confirms UNSUBSCRIBE without names once for each subscription. Prints the confirmations until none has
 * arrived for QUIET_MS. */
static void acknowledgements_show(struct cli *cli) {
    while (cli->subscribed) {
        struct resp_value *v = session_read(&cli->session, QUIET_MS);
        if (!v) return;
        pubsub_follow(cli, v);
        show_reply(cli, v, false);
    }
}

static int replies_show(struct cli *cli, int argc, const struct slice *argv) {
    bool subscribing = is_subscribing(argc, argv);
    for (int left = replies_expected(argc, argv); left > 0; left--) {
        struct resp_value *reply = reply_next(cli, subscribing);
        if (!reply) {
            /* A server that shuts down sends no reply. */
            if (!cli_interrupted && command_is(argc, argv, "shutdown", NULL)) {
                session_close(&cli->session);
                return 0;
            }
            return connection_failed(cli);
        }
        int redirected = redirect(cli, reply);
        if (redirected != 0) return redirected;
        if (subscribing) pubsub_follow(cli, reply);
        state_follow(cli, argc, argv, reply);
        if (reply->type == RESP_ERROR) {
            left = 1;
            if (cli->options.exit_on_error) {
                fprintf(stderr, "%s\n", reply->text.data);
                return -1;
            }
        }
        show_reply(cli, reply, is_text_command(argc, argv));
        if (reply->type != RESP_ERROR && command_is(argc, argv, "monitor", NULL)) return monitor_follow(cli);
    }
    if (subscribing && argc == 1) acknowledgements_show(cli);
    return 0;
}

/* Whether the server has closed the connection since the last command. At the prompt this is an error, because
 * transactions and subscriptions are lost; the next command connects again. */
static bool is_dropped(struct cli *cli) {
    struct session *s = &cli->session;
    if (!cli->interactive || !s->conn) return false;
    event_loop_turn(s->loop, 0);
    if (session_is_open(s)) return false;
    snprintf(s->error, sizeof s->error, "Server closed the connection");
    return true;
}

/* Direct placement names memory that the client has registered. A program without any would have its own device refuse
 * the transfer, which ends the connection. */
static bool places(int argc, const struct slice *argv) {
    bool get = command_is(argc, argv, "blob.get", NULL) || command_is(argc, argv, "blob.rdma_get", NULL);
    bool set = command_is(argc, argv, "blob.set", NULL) || command_is(argc, argv, "blob.rdma_set", NULL);
    return (get && argc >= 5) || (set && argc >= 6);
}

static int refuse_placement(const struct cli *cli, const struct slice *argv) {
    bool get = slice_is(argv[0], "blob.get") || slice_is(argv[0], "blob.rdma_get");
    fprintf(stderr,
            "%.*s with rkey, address and length places the value in memory that the client has registered with its "
            "RDMA device.\nvalkey-cli has none; it can %s. Programs use libvalkeyrdma; valkey-benchmark has "
            "--placement.\n",
            (int)argv[0].len, argv[0].data,
            get ? "show the value with BLOB.GET key, or BLOB.INFO key" : "set the value with BLOB.SET key value");
    return cli->interactive ? 0 : -1;
}

static int command_once(struct cli *cli, int argc, const struct slice *argv) {
    if (places(argc, argv)) return refuse_placement(cli, argv);
    if (is_dropped(cli)) return connection_failed(cli);
    if (cli_connect(cli, false, true) < 0) return -1;
    if (command_is(argc, argv, "sync", NULL) || command_is(argc, argv, "psync", NULL)) {
        printf("Entering replica output mode...  (press Ctrl-C to quit)\n");
        fflush(stdout);
        return replica_follow(cli, argc, argv);
    }
    for (int i = 0; i < REDIRECTIONS_MAX; i++) {
        session_send(&cli->session, argc, argv);
        int result = replies_show(cli, argc, argv);
        if (result <= 0) return result;
    }
    fprintf(stderr, "Too many redirections\n");
    return -1;
}

int cli_command(struct cli *cli, int argc, const struct slice *argv, int64_t repeat) {
    if (command_is(argc, argv, "help", NULL) || command_is(argc, argv, "?", NULL)) {
        if (argc > 1) cli_connect(cli, false, false);
        docs_help(cli, argc - 1, argv + 1);
        return cli->subscribed && cli->interactive ? messages_follow(cli) : 0;
    }
    for (int64_t left = repeat; left != 0; left -= left > 0) {
        uint64_t start = clock_monotonic_us();
        int result = command_once(cli, argc, argv);
        if (result < 0) return result;
        uint64_t took = clock_monotonic_us() - start;
        if (cli->interactive && cli->tty && cli->options.output == CLI_FORMATTED && took >= SLOW_US)
            printf("(%.2fs)\n", (double)took / 1e6);
        if (cli->options.interval_us) usleep((useconds_t)cli->options.interval_us);
        if (cli_interrupted) break;
    }
    return cli->subscribed ? messages_follow(cli) : 0;
}
