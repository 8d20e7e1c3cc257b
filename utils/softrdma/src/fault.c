/* Parses SOFTRDMA_FAULTS into rules and matches them. A rule that cannot be understood ends the program at
 * once: a test that means to inject a fault must not pass because of a typing error. */
#define _GNU_SOURCE
#include "fault.h"

#include <ctype.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stats.h"

#define MAX_RULES 32

struct rule {
    enum fault_point point;
    struct fault fault;
    uint64_t delay_max; /* DELAY: random up to this */
    uint64_t nth, from, count, every;
    double probability;
    uint64_t seed; /* state of the generator */
    char op[40];
    char *while_file; /* the rule sleeps while there is no such file */
    uint64_t seen, hits;
};

bool fault_armed[FAULT_POINT_COUNT];
static struct rule rules[MAX_RULES];
static uint32_t rule_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct {
    const char *name;
    int value;
} statuses[] = {{"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
                {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
                {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
                {"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
                {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
                {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
                {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
                {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
                {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
                {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
                {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
                {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
                {"FATAL_ERR", IBV_WC_FATAL_ERR},
                {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR},
                {"GENERAL_ERR", IBV_WC_GENERAL_ERR}},
  errnos[] = {{"ENOMEM", ENOMEM},
              {"EAGAIN", EAGAIN},
              {"EINVAL", EINVAL},
              {"EPERM", EPERM},
              {"EMFILE", EMFILE},
              {"ENFILE", ENFILE},
              {"ENODEV", ENODEV},
              {"EBUSY", EBUSY},
              {"EIO", EIO},
              {"EACCES", EACCES},
              {"EFAULT", EFAULT},
              {"ENOSPC", ENOSPC},
              {"EINTR", EINTR},
              {"EADDRINUSE", EADDRINUSE},
              {"ENOTSUP", ENOTSUP},
              {"ETIMEDOUT", ETIMEDOUT},
              {"ECONNREFUSED", ECONNREFUSED}};

static _Noreturn void bad_rule(const char *rule, const char *why) {
    fprintf(stderr, "softrdma: SOFTRDMA_FAULTS: \"%s\": %s\n", rule, why);
    _exit(2);
}

static uint64_t number(const char *rule, const char *text) {
    char *end;
    errno = 0;
    uint64_t n = strtoull(text, &end, 0);
    if (errno || end == text || *end) bad_rule(rule, "a number was expected");
    return n;
}

static uint64_t named_status(const char *rule, const char *text) {
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
        if (!strcmp(text, statuses[i].name)) return (uint64_t)statuses[i].value;
    return number(rule, text);
}

static uint64_t named_errno(const char *rule, const char *text) {
    for (size_t i = 0; i < ARRAY_LEN(errnos); i++)
        if (!strcmp(text, errnos[i].name)) return (uint64_t)errnos[i].value;
    return number(rule, text);
}

/* "250" microseconds, or a range "100-500". */
static void parse_delay(const char *rule, char *text, struct rule *r) {
    char *dash = strchr(text, '-');
    if (dash) *dash = 0;
    r->fault.value = number(rule, text) * NS_PER_US;
    r->delay_max = dash ? number(rule, dash + 1) * NS_PER_US : r->fault.value;
    if (r->delay_max < r->fault.value) bad_rule(rule, "the range is empty");
}

static uint64_t value_without(enum fault_action action) {
    switch (action) {
    case ACT_REJECT: return 28;
    case ACT_KILL: return SIGKILL;
    case ACT_RNR:
    case ACT_REMOVE: return 0;
    default: return 1;
    }
}

static void parse_action(const char *rule, char *text, struct rule *r) {
    static const struct {
        const char *name;
        enum fault_action action;
        bool needs_value;
    } actions[] = {{"drop", ACT_DROP, false},
                   {"delay", ACT_DELAY, true},
                   {"error", ACT_ERROR, true},
                   {"rnr", ACT_RNR, false},
                   {"fail", ACT_FAIL, true},
                   {"reject", ACT_REJECT, false},
                   {"unreachable", ACT_UNREACHABLE, false},
                   {"remove", ACT_REMOVE, false},
                   {"scatter", ACT_SCATTER, true},
                   {"hold", ACT_HOLD, false},
                   {"kill", ACT_KILL, false},
                   {"exit", ACT_EXIT, false}};
    char *value = strchr(text, '=');
    if (value) *value++ = 0;
    for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
        if (strcmp(text, actions[i].name) != 0) continue;
        r->fault.action = actions[i].action;
        if (actions[i].needs_value && !value) bad_rule(rule, "this action needs a value");
        if (!value) {
            r->fault.value = value_without(r->fault.action);
            return;
        }
        if (r->fault.action == ACT_DELAY || r->fault.action == ACT_SCATTER)
            parse_delay(rule, value, r);
        else if (r->fault.action == ACT_ERROR)
            r->fault.value = named_status(rule, value);
        else if (r->fault.action == ACT_FAIL)
            r->fault.value = named_errno(rule, value);
        else
            r->fault.value = number(rule, value);
        return;
    }
    bad_rule(rule, "unknown action");
}

/* Returns false when the rule is for another program. */
static bool parse_selector(const char *rule, char *text, struct rule *r) {
    char *value = strchr(text, '=');
    if (!value) bad_rule(rule, "a selector is key=value");
    *value++ = 0;
    if (!strcmp(text, "nth"))
        r->nth = number(rule, value);
    else if (!strcmp(text, "from"))
        r->from = number(rule, value);
    else if (!strcmp(text, "count"))
        r->count = number(rule, value);
    else if (!strcmp(text, "every"))
        r->every = number(rule, value);
    else if (!strcmp(text, "seed"))
        r->seed = number(rule, value) * 2654435769u + 1;
    else if (!strcmp(text, "p"))
        r->probability = strtod(value, NULL);
    else if (!strcmp(text, "op"))
        snprintf(r->op, sizeof(r->op), "%s", value);
    else if (!strcmp(text, "while"))
        r->while_file = strdup(value);
    else if (!strcmp(text, "proc"))
        return !strcmp(value, program_invocation_short_name);
    else
        bad_rule(rule, "unknown selector");
    return true;
}

static enum fault_point parse_point(const char *rule, const char *text) {
    static const char *names[] = {
#define X(id, name) name,
        FAULT_POINTS(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!strcmp(text, names[i])) return (enum fault_point)i;
    bad_rule(rule, "unknown point");
}

static void parse_rule(char *text) {
    char rule[256];
    snprintf(rule, sizeof(rule), "%s", text);
    if (rule_count == MAX_RULES) bad_rule(rule, "too many rules");
    struct rule r = {.probability = 100, .seed = 88172645463325252ull};
    char *save = NULL, *head = strtok_r(text, ",", &save), *action = head ? strchr(head, ':') : NULL;
    if (!action) bad_rule(rule, "expected point:action");
    *action++ = 0;
    r.point = parse_point(rule, head);
    parse_action(rule, action, &r);
    bool mine = true;
    for (char *selector; (selector = strtok_r(NULL, ",", &save));) mine &= parse_selector(rule, selector, &r);
    if (!mine) return;
    rules[rule_count++] = r;
    fault_armed[r.point] = true;
}

static void fault_parse(void) {
    const char *env = getenv("SOFTRDMA_FAULTS");
    if (!env || !*env) return;
    char *copy = strdup(env), *save = NULL;
    for (char *rule = strtok_r(copy, "; \n", &save); rule; rule = strtok_r(NULL, "; \n", &save)) parse_rule(rule);
    free(copy);
}

void fault_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fault_parse);
}

static uint64_t next_random(struct rule *r) {
    r->seed ^= r->seed << 13;
    r->seed ^= r->seed >> 7;
    r->seed ^= r->seed << 17;
    return r->seed;
}

/* The file is there, and names no other queue pair. */
static bool is_time(const char *file, uint32_t qpn) {
    if (access(file, F_OK)) return false;
    FILE *f = fopen(file, "r");
    unsigned wanted;
    bool right = f && (fscanf(f, "%u", &wanted) != 1 || wanted == qpn);
    if (f) fclose(f);
    return right;
}

static bool rule_matches(struct rule *r, const char *what, uint32_t qpn) {
    if (*r->op && (!what || strcmp(r->op, what) != 0)) return false;
    if (r->while_file && !is_time(r->while_file, qpn)) return false;
    uint64_t n = ++r->seen;
    if (r->nth && n != r->nth) return false;
    if (r->from && n < r->from) return false;
    if (r->every && n % r->every) return false;
    if (r->count && r->hits >= r->count) return false;
    if (r->probability < 100 && (double)(next_random(r) % 1000000) >= r->probability * 10000) return false;
    r->hits++;
    return true;
}

bool fault_look_up(enum fault_point point, const char *what, uint32_t qpn, struct fault *out) {
    bool hit = false;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < rule_count; i++) {
        struct rule *r = &rules[i];
        if (r->point != point || !rule_matches(r, what, qpn) || hit) continue;
        hit = true;
        *out = r->fault;
        if ((r->fault.action == ACT_DELAY || r->fault.action == ACT_SCATTER) && r->delay_max > r->fault.value)
            out->value += next_random(r) % (r->delay_max - r->fault.value);
    }
    pthread_mutex_unlock(&lock);
    if (!hit) return false;
    stats_inc(faults);
    if (out->action == ACT_KILL || out->action == ACT_EXIT) {
        stats_write();
        if (out->action == ACT_EXIT) _exit((int)out->value);
        kill(getpid(), (int)out->value);
    }
    return true;
}
