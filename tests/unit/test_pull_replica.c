/* The replica's half of a full synchronization that the replica fetches: the bytes arrive in order, with several reads
 * in flight; a primary that violates the protocol, a wrong checksum and an invalid key end the fetch with a reason; a
 * fetch may be cancelled at any time. Both ends run in one loop.
 *
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma. */
#ifdef USE_RDMA
#pragma GCC diagnostic ignored "-Wunused-function" /* only the ends of the suite are used */
#include "lib/hash/crc32c.h"
#include "net/rdma/rdma.h"
#include "net/rdma/read.h"
#include "rdma_device_arranged.h"
#include "repl/pull/replica.h"
#include "repl/pull/seal.h"
#include "repl/pull/wire.h"
#include "repl/settings.h"
#include "transport_suite.h"

enum { CHUNK = 64 * 1024, CHUNKS = 600, AREA = 40 * CHUNK };

static _Alignas(4096) char bytes[AREA];
static struct rdma_window offered;
static struct pull_fetch *fetch;

static int use_rdma(void **state) {
    suite = (struct suite){.transport = &transport_rdma, .trusting = true};
    const char *ip = getenv("RDMA_IP");
    snprintf(suite.host, sizeof suite.host, "%s", ip ? ip : "127.0.0.1");
    repl_settings.timeout = 60;
    return 0;
}

static void ignore(struct end *end) {}
static int setup(void **state) {
    for (size_t i = 0; i < AREA; i++) bytes[i] = stream_byte(9, i);
    memset(&offered, 0, sizeof offered);
    int result = suite_setup(state);
    client.on_readable = client.on_closed = server.on_closed = ignore;
    return result;
}

/* The last acknowledgement of the replica. */
static uint64_t pulled;
static void primary_hears(struct end *end) {
    struct slice in = conn_peek(end->conn);
    static const char word[] = "PULLED\r\n$";
    size_t used = 0;
    for (const char *at; (at = memmem(in.data + used, in.len - used, word, sizeof word - 1)) != NULL;) {
        const char *number = memchr(at + sizeof word - 1, '\n', in.len - (size_t)(at + sizeof word - 1 - in.data));
        const char *end_of_line = number ? memchr(number + 1, '\n', in.len - (size_t)(number + 1 - in.data)) : NULL;
        if (!end_of_line) break;
        uint64_t count = strtoull(number + 1, NULL, 10);
        assert_true(count > pulled);
        pulled = count;
        used = (size_t)(end_of_line + 1 - in.data);
    }
    conn_consume(end->conn, used);
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    char line[1000];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    output_write(&server.conn->out, slice_make(line, (size_t)len));
    conn_flush(server.conn);
}

static void begin(void) {
    const char *error = NULL;
    char header[64];
    pulled = 0;
    open_both();
    server.on_readable = primary_hears;
    assert_true(pull_fetch_possible(client.conn));
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes, AREA, &offered), 0);
    snprintf(header, sizeof header, PULL_HEADER "%d %d", (int)CHUNK, (int)CHUNKS);
    fetch = pull_fetch_new(client.conn, slice_of(header), &error);
    assert_non_null(fetch);
}
static void end(void) {
    end_close(&client);
    pull_fetch_free(fetch);
    turn_until(server.closed == 1);
}

/* Chunk n is a part of the area, which is reused. */
static size_t chunk_at(uint64_t n) {
    return (size_t)(n * 7 % 40) * CHUNK;
}
static void announce(uint64_t n, uint32_t length) {
    const char *at = bytes + chunk_at(n);
    say(PULL_CHUNK "%llu %llu %u %u %u %llu\r\n", (unsigned long long)n, (unsigned long long)(uintptr_t)at, length,
        offered.rkey, crc32c(0, at, length), (unsigned long long)n);
}

static void expect_chunk(uint64_t n, uint32_t length) {
    static char got[CHUNK];
    for (uint32_t have = 0; have < length;) {
        ssize_t step = pull_fetch_read(fetch, got + have, length - have < 5000 ? length - have : 5000);
        assert_true(step > 0);
        have += (uint32_t)step;
    }
    assert_memory_equal(got, bytes + chunk_at(n), length);
}
static void expect_failure(int error, const char *reason) {
    char got[100];
    ssize_t result;
    while ((result = pull_fetch_read(fetch, got, sizeof got)) > 0) continue;
    assert_int_equal(result, error);
    assert_non_null(pull_fetch_error(fetch));
    assert_non_null(strstr(pull_fetch_error(fetch), reason));
    assert_int_equal(pull_fetch_read(fetch, got, sizeof got), error);
    end();
}

#define PULL_TEST(name) TEST_WITH(name, setup, suite_teardown)

PULL_TEST(chunks_arrive_in_order_and_are_acknowledged) {
    struct pull_progress progress;
    char byte;
    begin();
    uint64_t total = 0;
    for (uint64_t n = 0; n < CHUNKS; n++) {
        uint32_t length = n % 5 ? CHUNK : 1 + (uint32_t)n;
        announce(n, length);
        total += length;
        if (n % 50 == 0) say("\r\n"); /* keepalive */
    }
    say(PULL_END "%d %llu\r\n", (int)CHUNKS, (unsigned long long)total);
    for (uint64_t n = 0; n < CHUNKS; n++) {
        expect_chunk(n, n % 5 ? CHUNK : 1 + (uint32_t)n);
        assert_true(pull_fetch_progress(&progress));
        assert_true(progress.keys_total == CHUNKS && progress.percent >= 0 && progress.percent <= 100);
    }
    assert_int_equal(pull_fetch_read(fetch, &byte, 1), 0);
    assert_int_equal(pull_fetch_read(fetch, &byte, 1), 0);
    assert_null(pull_fetch_error(fetch));
    turn_until(pulled == CHUNKS);
    end();
    assert_false(pull_fetch_progress(&progress));
}

/* The rest of a chunk that was read in part is also shown. */
PULL_TEST(chunks_are_shown_where_they_lie) {
    enum { READ = 10 };
    const char *shown;
    char got[READ];
    begin();
    uint64_t total = 0;
    for (uint64_t n = 0; n < CHUNKS; n++) announce(n, CHUNK), total += CHUNK;
    say(PULL_END "%d %llu\r\n", (int)CHUNKS, (unsigned long long)total);
    for (uint64_t n = 0; n < CHUNKS; n++) {
        size_t before = n % 3 == 0 ? READ : 0;
        if (before) assert_int_equal(pull_fetch_read(fetch, got, READ), READ);
        assert_memory_equal(got, bytes + chunk_at(n - n % 3), READ);
        assert_int_equal(pull_fetch_show(fetch, &shown), CHUNK - before);
        pull_fetch_pump(fetch); /* must not change the bytes that were shown */
        assert_memory_equal(shown, bytes + chunk_at(n) + before, CHUNK - before);
    }
    assert_int_equal(pull_fetch_show(fetch, &shown), 0);
    assert_int_equal(pull_fetch_show(fetch, &shown), 0);
    turn_until(pulled == CHUNKS);
    end();
}

/* A writer of a file does not run the loop: it is notified when a read has ended. */
static int arrivals;
static void note_arrival(void) {
    arrivals++;
}
static ssize_t take(const char **shown) {
    ssize_t got;
    turn_until((got = pull_fetch_take(fetch, shown)) != -EAGAIN);
    return got;
}
PULL_TEST(chunks_are_taken_when_they_have_arrived) {
    const char *shown;
    begin();
    arrivals = 0;
    pull_fetch_notify(fetch, note_arrival);
    assert_int_equal(pull_fetch_take(fetch, &shown), -EAGAIN);
    uint64_t total = 0;
    for (uint64_t n = 0; n < CHUNKS; n++) announce(n, CHUNK), total += CHUNK;
    say(PULL_END "%d %llu\r\n", (int)CHUNKS, (unsigned long long)total);
    for (uint64_t n = 0; n < CHUNKS; n++) {
        assert_int_equal(take(&shown), CHUNK);
        assert_memory_equal(shown, bytes + chunk_at(n), CHUNK);
    }
    assert_int_equal(take(&shown), 0);
    assert_int_equal(arrivals, CHUNKS);
    turn_until(pulled == CHUNKS);
    end();
}

PULL_TEST(a_read_that_fails_is_notified) {
    const char *shown;
    begin();
    arrivals = 0;
    pull_fetch_notify(fetch, note_arrival);
    rdma_window_close(&offered);
    announce(0, CHUNK);
    turn_until(client.conn->in_len > 0);
    assert_int_equal(pull_fetch_take(fetch, &shown), -EAGAIN);
    turn_until(arrivals == 1);
    assert_true(pull_fetch_take(fetch, &shown) < 0);
    assert_non_null(strstr(pull_fetch_error(fetch), "reading chunk 0 failed"));
    end();
}

PULL_TEST(what_follows_the_end_stays_in_the_connection) {
    char byte;
    begin();
    announce(0, 100);
    say(PULL_END "1 100\r\n*1\r\n$4\r\nPING\r\n");
    expect_chunk(0, 100);
    assert_int_equal(pull_fetch_read(fetch, &byte, 1), 0);
    turn_until(client.conn->in_len == 14);
    end();
}

/* The size of the buffers limits how much is fetched ahead of the loader, however much the primary announces. */
PULL_TEST(no_more_than_the_buffers_is_fetched_ahead) {
    begin();
    for (uint64_t n = 0; n < CHUNKS; n++) announce(n, CHUNK);
    expect_chunk(0, CHUNK);
    for (int i = 0; i < 2000 || pulled <= 1; i++) { /* a thread of the device copies */
        event_loop_turn(loop, 0);
        pull_fetch_pump(fetch);
    }
    assert_true(pulled > 1 && pulled <= 1 + PULL_FETCH_MEMORY / CHUNK);
    end();
}

PULL_TEST(a_primary_that_breaks_a_rule_is_refused) {
    static const struct {
        const char *line, *reason;
    } cases[] = {
        {PULL_CHUNK "1 4096 100 1 1 1\r\n", "descriptor"},          /* not the next number */
        {PULL_CHUNK "0 4096 0 1 1 1\r\n", "descriptor"},            /* no bytes */
        {PULL_CHUNK "0 4096 65537 1 1 1\r\n", "descriptor"},        /* more than a chunk */
        {PULL_CHUNK "0 4096 4294967396 1 1 1\r\n", "descriptor"},   /* 2^32 + 100 */
        {PULL_CHUNK "0 4096 100 4294967296 1 1\r\n", "descriptor"}, /* the key has 32 bits */
        {PULL_CHUNK "0 4096 100 1 4294967296 1\r\n", "descriptor"}, /* so has the checksum */
        {PULL_CHUNK "0 4096 100 1 1\r\n", "descriptor"},
        {PULL_CHUNK "0 4096 100 1 1 1 1\r\n", "descriptor"},
        {PULL_CHUNK "0 -1 100 1 1 1\r\n", "descriptor"},
        {PULL_CHUNK "0  4096 100 1 1 1\r\n", "descriptor"},
        {PULL_CHUNK "\r\n", "descriptor"},
        {PULL_END "1 0\r\n", "end of the snapshot"},
        {PULL_END "0 1\r\n", "end of the snapshot"},
        {PULL_END "0\r\n", "end of the snapshot"},
        {"+OK\r\n", "unknown message"},
        {"$5\r\n", "unknown message"},
        {"-ERR the snapshot failed\r\n", "ERR the snapshot failed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        say("%s", cases[i].line);
        expect_failure(cases[i].line[0] == '-' ? -ECONNABORTED : -EPROTO, cases[i].reason);
        suite_teardown(state);
        setup(state);
    }
}

PULL_TEST(a_line_without_end_is_refused) {
    begin();
    for (int i = 0; i < 3; i++) say(PULL_CHUNK "%090d", 0);
    expect_failure(-EPROTO, "too long");
}

PULL_TEST(a_chunk_with_a_wrong_checksum_is_refused) {
    begin();
    announce(0, 100);
    say(PULL_CHUNK "1 %llu 100 %u %u 1\r\n", (unsigned long long)(uintptr_t)bytes, offered.rkey,
        crc32c(0, bytes, 100) + 1);
    expect_failure(-EILSEQ, "chunk 1 has a wrong checksum");
}

PULL_TEST(an_address_outside_of_the_window_is_refused_by_the_device) {
    begin();
    say(PULL_CHUNK "0 %llu %d %u 1 1\r\n", (unsigned long long)(uintptr_t)bytes + AREA - 100, (int)CHUNK, offered.rkey);
    expect_failure(-EACCES, "reading chunk 0 failed");
}

PULL_TEST(a_revoked_key_opens_nothing) {
    begin();
    announce(0, CHUNK);
    expect_chunk(0, CHUNK);
    rdma_window_close(&offered);
    announce(1, CHUNK);
    expect_failure(-EACCES, "reading chunk 1 failed");
}

PULL_TEST(a_primary_that_leaves_ends_the_fetch) {
    begin();
    announce(0, 100);
    turn_until(client.conn->in_len > 0);
    end_close(&server);
    server.closed = 1;
    char got[100];
    ssize_t result;
    while ((result = pull_fetch_read(fetch, got, sizeof got)) > 0) continue;
    assert_true(result == -ECONNRESET || result == -EACCES); /* a READ under way may meet the revoked key first */
    end();
}

PULL_TEST(a_fetch_may_be_freed_with_reads_in_flight) {
    begin();
    for (uint64_t n = 0; n < 20; n++) announce(n, CHUNK);
    turn_until(client.conn->in_len > 500);
    pull_fetch_pump(fetch);
    pull_fetch_free(fetch); /* before the connection: the last read frees its memory */
    end_close(&client);
    turn_until(server.closed == 1);
    assert_int_equal(rdma_stats()->windows, 1); /* the primary's */
}

PULL_TEST(a_malformed_header_begins_nothing) {
    static const char *const headers[] = {"$PULL:",
                                          "$PULL:65536",
                                          "$PULL:4095 1",
                                          "$PULL:8388609 1",
                                          "$PULL:x 1",
                                          "$PULL:65536 1 1",
                                          "$PULL:65536 ",
                                          "$PULL:-65536 1",
                                          "$EOF:65536 1",
                                          "$PULL:0 1",
                                          "$PULL:99999999999999999999 1"};
    const char *error;
    open_both();
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        error = NULL;
        assert_null(pull_fetch_new(client.conn, slice_of(headers[i]), &error));
        assert_non_null(error);
    }
    end_close(&client);
    turn_until(server.closed == 1);
}

#ifdef USE_TLS
/* A link with TLS, as the fetch sees it: its transport has a carrier, which is here the connection itself. */
static struct transport with_carrier;
static struct connection *itself(const struct connection *conn) {
    return (struct connection *)(uintptr_t)conn;
}
static struct pull_seal *seal;

/* A fetch whose header has `before` and `digits` digits of the key behind the other fields. */
static struct pull_fetch *sealed_fetch_new(const struct pull_key *key, const char *before, int digits) {
    const char *error = NULL;
    char header[160], text[2 * PULL_KEY_SIZE + 3];
    for (int i = 0; i <= PULL_KEY_SIZE; i++) snprintf(text + 2 * i, 3, "%02x", i < PULL_KEY_SIZE ? key->bytes[i] : 0);
    snprintf(header, sizeof header, PULL_HEADER "%d %d%s%.*s", (int)CHUNK, (int)CHUNKS, before, digits, text);
    struct pull_fetch *made = pull_fetch_new(client.conn, slice_of(header), &error);
    assert_true(made || error);
    return made;
}
static void sealed_begin(void) {
    struct pull_key key;
    assert_true(pull_key_new(&key));
    seal = pull_seal_new(&key);
    assert_non_null(seal);
    open_both();
    server.on_readable = primary_hears;
    pulled = 0;
    with_carrier = *client.conn->transport;
    with_carrier.carrier = itself;
    client.conn->transport = &with_carrier;
    assert_true(pull_fetch_possible(client.conn));
    assert_int_equal(rdma_window_open(server.conn, RDMA_WINDOW_OFFERED, bytes, AREA, &offered), 0);
    fetch = sealed_fetch_new(&key, " ", 2 * PULL_KEY_SIZE);
    assert_non_null(fetch);
}
/* Encrypts `length` - PULL_TAG_SIZE bytes into the place of chunk n, as chunk `number`. */
static void close_chunk(uint64_t n, uint64_t number, uint32_t length) {
    static char text[CHUNK];
    for (uint32_t i = 0; i < length; i++) text[i] = stream_byte((uint32_t)n, i);
    assert_true(pull_seal_close(seal, number, text, length - PULL_TAG_SIZE, bytes + chunk_at(n)));
}
static void sealed_end(void) {
    pull_seal_free(seal);
    end();
}

PULL_TEST(encrypted_chunks_arrive) {
    enum { COUNT = 30, LEN = CHUNK - PULL_TAG_SIZE };
    static char got[LEN];
    uint64_t total = 0;
    sealed_begin();
    for (uint64_t n = 0; n < COUNT; n++) {
        uint32_t length = n == COUNT - 1 ? PULL_TAG_SIZE + 1 : CHUNK;
        close_chunk(n, n, length);
        announce(n, length);
        total += length;
    }
    say(PULL_END "%d %llu\r\n", (int)COUNT, (unsigned long long)total);
    for (uint64_t n = 0; n < COUNT; n++) {
        uint32_t length = n == COUNT - 1 ? 1 : LEN;
        for (uint32_t have = 0; have < length;) {
            ssize_t step = pull_fetch_read(fetch, got + have, length - have);
            assert_true(step > 0);
            have += (uint32_t)step;
        }
        for (uint32_t i = 0; i < length; i++) assert_int_equal(got[i], stream_byte((uint32_t)n, i));
    }
    assert_int_equal(pull_fetch_read(fetch, got, 1), 0);
    turn_until(pulled == COUNT);
    sealed_end();
}

PULL_TEST(an_encrypted_chunk_that_was_changed_ends_the_fetch) {
    sealed_begin();
    close_chunk(0, 0, CHUNK);
    bytes[chunk_at(0) + 77] ^= 1;
    announce(0, CHUNK);
    expect_failure(-EBADMSG, "its tag is wrong");
    pull_seal_free(seal);
}
PULL_TEST(an_encrypted_chunk_in_the_place_of_another_ends_the_fetch) {
    sealed_begin();
    close_chunk(0, 1, CHUNK);
    announce(0, CHUNK);
    expect_failure(-EBADMSG, "its tag is wrong");
    pull_seal_free(seal);
}
PULL_TEST(an_encrypted_chunk_without_text_ends_the_fetch) {
    sealed_begin();
    announce(0, PULL_TAG_SIZE);
    expect_failure(-EPROTO, "descriptor of chunk 0 is malformed");
    pull_seal_free(seal);
}
PULL_TEST(a_header_without_a_good_key_is_refused_on_an_encrypted_link) {
    enum { ALL = 2 * PULL_KEY_SIZE };
    struct pull_key key;
    memset(&key, 0xab, sizeof key);
    sealed_begin();
    assert_null(sealed_fetch_new(&key, "", 0));
    assert_null(sealed_fetch_new(&key, " ", 0));
    assert_null(sealed_fetch_new(&key, " ", ALL - 1));
    assert_null(sealed_fetch_new(&key, " ", ALL + 1));
    assert_null(sealed_fetch_new(&key, "", ALL));
    assert_null(sealed_fetch_new(&key, "  ", ALL));
    assert_null(sealed_fetch_new(&key, " A", ALL - 1));
    assert_null(sealed_fetch_new(&key, " x", ALL - 1));
    sealed_end();
}
PULL_TEST(a_header_with_a_key_is_refused_on_a_link_in_clear_text) {
    struct pull_key key = {{0}};
    begin();
    assert_null(sealed_fetch_new(&key, " ", 2 * PULL_KEY_SIZE));
    end();
}
#endif

int main(int argc, char **argv) {
    if (!rdma_device_arranged(argv[0])) return 1;
    return RUN_TESTS_WITH(use_rdma, NULL);
}
#endif
