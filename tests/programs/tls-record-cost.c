/* tls-record-cost: what OpenSSL takes for the records of one request and its reply.
 *
 *   tls-record-cost [REQUEST-BYTES REPLY-BYTES]        default: 14 and 7, PING
 *
 * Prints five times of a round trip, in microseconds. CPU time of one core: of AES-256-GCM alone, with its nonces and
 * tags (EVP), for the four times that a record is encrypted or decrypted; of SSL_write() and SSL_read(), TLS 1.3, by a
 * BIO that does nothing but copy the record; and by memory BIOs. Then a round trip between two threads that look at
 * shared memory all the time, with such sessions and without. No transport over OpenSSL can take less than the second
 * one. The difference of the last two is what TLS adds when each end waits for the other in between, as clients and
 * servers do: OpenSSL does not run as fast as in a loop of its own then. It needs two CPUs that are free. */
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMES = 10000, REPEAT = 50, RECORD_MAX = 16 * 1024, NONCE = 12, TAG = 16, HEADER = 5 };

static void check(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "tls-record-cost: %s failed\n", what);
    exit(1);
}

/* --- The cipher --- */

static unsigned char key[32], nonce[NONCE], header[HEADER] = {23, 3, 3}, tag[TAG], plain[RECORD_MAX],
                                            sealed[RECORD_MAX], opened[RECORD_MAX];

static void seal(EVP_CIPHER_CTX *cipher, int len) {
    int n;
    nonce[11]++; /* as a record's nonce, which is another one each time */
    bool good = EVP_EncryptInit_ex(cipher, NULL, NULL, NULL, nonce) == 1 &&
                EVP_EncryptUpdate(cipher, NULL, &n, header, HEADER) == 1 &&
                EVP_EncryptUpdate(cipher, sealed, &n, plain, len) == 1 &&
                EVP_EncryptFinal_ex(cipher, sealed + n, &n) == 1 &&
                EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG, tag) == 1;
    check(good, "encrypting");
}

static void unseal(EVP_CIPHER_CTX *cipher, int len) {
    int n;
    bool good = EVP_DecryptInit_ex(cipher, NULL, NULL, NULL, nonce) == 1 &&
                EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, TAG, tag) == 1 &&
                EVP_DecryptUpdate(cipher, NULL, &n, header, HEADER) == 1 &&
                EVP_DecryptUpdate(cipher, opened, &n, sealed, len) == 1 &&
                EVP_DecryptFinal_ex(cipher, opened + n, &n) == 1;
    check(good, "decrypting");
}

static EVP_CIPHER_CTX *sealing, *opening;

static void cipher_begin(void) {
    sealing = EVP_CIPHER_CTX_new();
    opening = EVP_CIPHER_CTX_new();
    check(sealing && EVP_EncryptInit_ex(sealing, EVP_aes_256_gcm(), NULL, key, nonce) == 1, "AES-256-GCM");
    check(opening && EVP_DecryptInit_ex(opening, EVP_aes_256_gcm(), NULL, key, nonce) == 1, "AES-256-GCM");
}

/* With the byte that TLS 1.3 adds, the type. */
static void cipher_round_trip(int request, int reply) {
    seal(sealing, request + 1);
    unseal(opening, request + 1);
    seal(sealing, reply + 1);
    unseal(opening, reply + 1);
}

/* --- Sessions --- */

/* The bytes of one direction. The reader empties it before it answers, so that two threads may share it. */
struct pipe {
    _Atomic size_t len;
    size_t taken;
    char bytes[4 * RECORD_MAX];
};
static struct pipe to_server, to_client;
static SSL *client, *server;

struct end {
    struct pipe *in, *out;
};

static size_t pipe_len(const struct pipe *pipe) {
    return atomic_load_explicit(&pipe->len, memory_order_acquire);
}

static size_t pipe_get(struct pipe *in, char *data, size_t size) {
    size_t len = pipe_len(in), part = len - in->taken < size ? len - in->taken : size;
    memcpy(data, in->bytes + in->taken, part);
    in->taken += part;
    if (in->taken == len) {
        in->taken = 0;
        atomic_store_explicit(&in->len, 0, memory_order_release);
    }
    return part;
}

static void pipe_put(struct pipe *out, const char *data, size_t size) {
    size_t len = pipe_len(out);
    check(size <= sizeof out->bytes - len, "a pipe");
    memcpy(out->bytes + len, data, size);
    atomic_store_explicit(&out->len, len + size, memory_order_release);
}

static int pipe_read(BIO *bio, char *data, size_t size, size_t *len) {
    struct pipe *in = ((struct end *)BIO_get_data(bio))->in;
    BIO_clear_retry_flags(bio);
    *len = pipe_get(in, data, size);
    if (*len) return 1;
    BIO_set_retry_read(bio);
    return 0;
}

static int pipe_write(BIO *bio, const char *data, size_t size, size_t *len) {
    pipe_put(((struct end *)BIO_get_data(bio))->out, data, size);
    *len = size;
    return 1;
}

static long pipe_control(BIO *bio, int command, long number, void *pointer) {
    return command == BIO_CTRL_FLUSH;
}

static BIO *pipe_bio(struct end *end) {
    static BIO_METHOD *method;
    if (!method) {
        method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "pipe");
        BIO_meth_set_read_ex(method, pipe_read);
        BIO_meth_set_write_ex(method, pipe_write);
        BIO_meth_set_ctrl(method, pipe_control);
    }
    BIO *bio = BIO_new(method);
    BIO_set_data(bio, end);
    BIO_set_init(bio, 1);
    return bio;
}

static X509 *certify(EVP_PKEY *pair) {
    X509 *certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, pair);
    check(X509_sign(certificate, pair, EVP_sha256()) > 0, "signing");
    return certificate;
}

/* As the transport has sessions of trusted peers: with buffers that stay, and reading ahead. */
static SSL *session(bool is_server, EVP_PKEY *pair, X509 *certificate) {
    SSL_CTX *context = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    check(SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") == 1, "the cipher suite");
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_num_tickets(context, 0);
    if (is_server)
        check(SSL_CTX_use_certificate(context, certificate) == 1 && SSL_CTX_use_PrivateKey(context, pair) == 1,
              "the certificate");
    SSL *ssl = SSL_new(context);
    SSL_CTX_free(context);
    if (is_server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

static void sessions_begin(bool memory) {
    static struct end of_client = {&to_client, &to_server}, of_server = {&to_server, &to_client};
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *certificate = certify(pair);
    server = session(true, pair, certificate);
    client = session(false, NULL, NULL);
    if (memory) {
        BIO *up = BIO_new(BIO_s_mem()), *down = BIO_new(BIO_s_mem());
        BIO_up_ref(up);
        BIO_up_ref(down);
        SSL_set_bio(server, up, down);
        SSL_set_bio(client, down, up);
    } else {
        BIO *at_server = pipe_bio(&of_server), *at_client = pipe_bio(&of_client);
        SSL_set_bio(server, at_server, at_server);
        SSL_set_bio(client, at_client, at_client);
    }
    for (int i = 0; i < 10 && !(SSL_is_init_finished(client) && SSL_is_init_finished(server)); i++) {
        SSL_do_handshake(client);
        SSL_do_handshake(server);
    }
    check(SSL_is_init_finished(client) && SSL_is_init_finished(server), "the handshake");
    X509_free(certificate);
    EVP_PKEY_free(pair);
}

static void sessions_end(void) {
    SSL_free(client);
    SSL_free(server);
    to_server.taken = to_client.taken = 0;
    atomic_store(&to_server.len, 0);
    atomic_store(&to_client.len, 0);
}

static void tls_put(SSL *from, size_t len) {
    size_t n;
    check(SSL_write_ex(from, plain, len, &n) == 1 && n == len, "SSL_write_ex()");
}
static void tls_get(SSL *to, unsigned char *data, size_t len) {
    size_t n;
    check(SSL_read_ex(to, data, RECORD_MAX, &n) == 1 && n == len, "SSL_read_ex()");
}

static void tls_round_trip(int request, int reply) {
    tls_put(client, (size_t)request);
    tls_get(server, opened, (size_t)request);
    tls_put(server, (size_t)reply);
    tls_get(client, opened, (size_t)reply);
}

/* --- Two threads --- */

struct job {
    int request, reply;
    bool tls;
};

static void await(const struct pipe *in) {
    while (!pipe_len(in)) continue;
}

static void put(const struct job *job, SSL *ssl, struct pipe *out, int len) {
    if (job->tls)
        tls_put(ssl, (size_t)len);
    else
        pipe_put(out, (const char *)plain, (size_t)len);
}
static void get(const struct job *job, SSL *ssl, struct pipe *in, unsigned char *data, int len) {
    await(in);
    if (job->tls)
        tls_get(ssl, data, (size_t)len);
    else
        check(pipe_get(in, (char *)data, RECORD_MAX) == (size_t)len, "a pipe");
}

static void *answer(void *argument) {
    static unsigned char data[RECORD_MAX];
    const struct job *job = argument;
    for (int i = 0; i < REPEAT * TIMES; i++) {
        get(job, server, &to_server, data, job->request);
        put(job, server, &to_client, job->reply);
    }
    return NULL;
}

static double clock_us(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double shortest_between_threads_us(struct job *job) {
    pthread_t thread;
    double best = 1e9;
    check(pthread_create(&thread, NULL, answer, job) == 0, "a thread");
    for (int i = 0; i < REPEAT; i++) {
        double began = clock_us(CLOCK_MONOTONIC);
        for (int j = 0; j < TIMES; j++) {
            put(job, client, &to_server, job->request);
            get(job, client, &to_client, opened, job->reply);
        }
        double took = (clock_us(CLOCK_MONOTONIC) - began) / TIMES;
        if (took < best) best = took;
    }
    pthread_join(thread, NULL);
    return best;
}

/* --- One --- */

/* The shortest of some measurements of CPU time: other processes disturb. */
static double shortest_us(void (*round_trip)(int, int), int request, int reply) {
    double best = 1e9;
    for (int i = 0; i < REPEAT; i++) {
        double began = clock_us(CLOCK_PROCESS_CPUTIME_ID);
        for (int j = 0; j < TIMES; j++) round_trip(request, reply);
        double took = (clock_us(CLOCK_PROCESS_CPUTIME_ID) - began) / TIMES;
        if (took < best) best = took;
    }
    return best;
}

int main(int argc, char **argv) {
    int request = argc > 2 ? atoi(argv[1]) : 14, reply = argc > 2 ? atoi(argv[2]) : 7;
    check(request > 0 && reply > 0 && request < RECORD_MAX && reply < RECORD_MAX, "reading the sizes");
    cipher_begin();
    printf("%.3f", shortest_us(cipher_round_trip, request, reply));
    for (int memory = 0; memory < 2; memory++) {
        sessions_begin(memory);
        printf(" %.3f", shortest_us(tls_round_trip, request, reply));
        sessions_end();
    }
    for (int tls = 1; tls >= 0; tls--) {
        struct job job = {request, reply, tls};
        sessions_begin(false);
        printf(" %.3f", shortest_between_threads_us(&job));
        sessions_end();
    }
    putchar('\n');
    EVP_CIPHER_CTX_free(sealing);
    EVP_CIPHER_CTX_free(opening);
    return 0;
}
