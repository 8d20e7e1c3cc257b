/* The Sentinel state machine with hello messages, replies and events of any content, in any order: it never reads or
 * writes outside its memory, its epochs do not fall, it gives one vote for an epoch, and it keeps the text of INFO.
 * Input: records; the first byte selects the event, the third is the length of its text, in units of 16 bytes if the
 * first has bit 3: then a whole INFO reply fits. */
#include "fuzz.h"
#include "sentinel/protocol/sentinel.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID "1111111111111111111111111111111111111111"

static uint64_t fixed(void *context) {
    return 3;
}
static bool resolve(void *context, const char *host, bool names, char ip[static SENTINEL_IP_MAX]) {
    if (host[0] < '0' || host[0] > '9' || strlen(host) >= SENTINEL_IP_MAX) return false;
    snprintf(ip, SENTINEL_IP_MAX, "%.45s", host);
    return true;
}
static bool own_address(void *context, const struct sentinel_link *link, char host[static SENTINEL_HOST_MAX],
                        int *port) {
    snprintf(host, SENTINEL_HOST_MAX, "10.9.9.9");
    *port = 26379;
    return true;
}
static void dial(void *context, struct sentinel_link *link, enum link_kind kind) {}
static void close_half_of(void *context, struct sentinel_link *link, enum link_kind kind) {}
static bool send_request(void *context, struct sentinel_link *link, const struct instance *to,
                         const struct sentinel_request *request) {
    return true;
}
static void save(void *context, bool durable) {}
static bool settle(void *context) {
    return true;
}
static void write_log(void *context, enum log_level level, const char *text) {}
static void event(void *context, enum log_level level, const char *type, const char *text,
                  const struct instance *group) {
    if (strlen(text) >= SENTINEL_TEXT_MAX) abort();
}
static void script(void *context, const struct instance *group, const char *role, const char *state,
                   const struct sentinel_address *from, const struct sentinel_address *to) {}
static void crash(void *context) {}
static void failover_delayed(void *context, int64_t wait_ms) {}
static const struct sentinel_effects effects = {.random = fixed,
                                                .resolve = resolve,
                                                .own_address = own_address,
                                                .dial = dial,
                                                .close = close_half_of,
                                                .send = send_request,
                                                .save = save,
                                                .settle = settle,
                                                .log = write_log,
                                                .event = event,
                                                .reconfig_script = script,
                                                .crash = crash,
                                                .failover_delayed = failover_delayed};

static struct instance *any(struct sentinel *s, uint8_t which) {
    struct instance *group = s->groups.items[0];
    size_t count = 1 + group->replicas.count + group->sentinels.count, n = which % count;
    if (n == 0) return group;
    if (--n < group->replicas.count) return group->replicas.items[n];
    return group->sentinels.items[n - group->replicas.count];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct instance *group;
    int64_t now = 1000000;
    uint64_t epoch = 0, voted_epoch = 0;
    char voted[SENTINEL_ID_LEN + 1] = "";
    struct sentinel *s = sentinel_new(ID, &effects, NULL, now);
    sentinel_monitor(s, SLICE("g"), SLICE("10.0.0.1"), 6379, 1, &group, now);
    sentinel_set_down_after(group, 2000);
    while (size >= 3) {
        uint8_t kind = data[0], which = data[1];
        size_t len = data[2] * (kind & 8 ? 16u : 1u);
        if (len > size - 3) len = size - 3;
        struct slice text = slice_make(data + 3, len);
        struct instance *i = any(s, which);
        struct sentinel_answer answer = {.text = text,
                                         .valid = kind & 64,
                                         .down = kind & 32,
                                         .error = kind & 16,
                                         .leader = text,
                                         .leader_epoch = which};
        now += 50;
        switch (kind % 10) {
        case 0: sentinel_hello(s, text, now); break;
        case 1: sentinel_replied(s, i->link, REQUEST_INFO, NULL, &answer, now); break;
        case 2: sentinel_replied(s, i->link, REQUEST_PING, NULL, &answer, now); break;
        case 3: sentinel_replied(s, i->link, REQUEST_ASK, "g", &answer, now); break;
        case 4:
            now += which * 20;
            sentinel_tick(s, now);
            break;
        case 5: sentinel_link_opened(s, i->link, (enum link_kind)(kind >> 7), now); break;
        case 6: sentinel_link_closed(s, i->link, (enum link_kind)(kind >> 7), "closed", now); break;
        case 7: {
            const char *leader;
            uint64_t leader_epoch;
            sentinel_is_down(s, SLICE("10.0.0.1"), 6379, which, text, &leader, &leader_epoch, now);
            if (*leader && leader_epoch == voted_epoch && *voted && strcmp(leader, voted) != 0) abort();
            if (*leader) {
                snprintf(voted, sizeof voted, "%s", leader);
                voted_epoch = leader_epoch;
            }
            break;
        }
        case 8: sentinel_failover(s, group, kind & 128, now); break;
        case 9:
            if (which == 0) sentinel_reset(s, group, now);
            break;
        }
        if (s->current_epoch < epoch) abort();
        epoch = s->current_epoch;
        data += 3 + len, size -= 3 + len;
    }
    sentinel_free(s);
    return 0;
}
