/* seal.c: see seal.h. */
#include "repl/pull/seal.h"
#ifdef USE_TLS
#include "lib/system/memory.h"
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>

enum { NONCE_SIZE = 12 };

struct pull_seal {
    EVP_CIPHER_CTX *context;
    struct pull_key key;
};

bool pull_key_new(struct pull_key *key) {
    return RAND_bytes(key->bytes, sizeof key->bytes) == 1;
}
void pull_key_forget(struct pull_key *key) {
    OPENSSL_cleanse(key, sizeof *key);
}

struct pull_seal *pull_seal_new(const struct pull_key *key) {
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    if (!context) return NULL;
    struct pull_seal *seal = mem_calloc(1, sizeof *seal);
    seal->context = context;
    seal->key = *key;
    return seal;
}
void pull_seal_free(struct pull_seal *seal) {
    if (!seal) return;
    EVP_CIPHER_CTX_free(seal->context);
    pull_key_forget(&seal->key);
    mem_free(seal);
}

static void nonce_of(uint64_t number, unsigned char nonce[NONCE_SIZE]) {
    memset(nonce, 0, NONCE_SIZE);
    for (int i = NONCE_SIZE - 1; number; i--, number >>= 8) nonce[i] = (unsigned char)number;
}

bool pull_seal_close(struct pull_seal *seal, uint64_t number, const char *text, size_t len, char *sealed) {
    unsigned char nonce[NONCE_SIZE], *to = (unsigned char *)sealed;
    int written;
    nonce_of(number, nonce);
    return len <= INT_MAX && EVP_EncryptInit_ex(seal->context, EVP_aes_256_gcm(), NULL, seal->key.bytes, nonce) == 1 &&
           EVP_EncryptUpdate(seal->context, to, &written, (const unsigned char *)text, (int)len) == 1 &&
           EVP_EncryptFinal_ex(seal->context, to + written, &written) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->context, EVP_CTRL_GCM_GET_TAG, PULL_TAG_SIZE, to + len) == 1;
}

bool pull_seal_open(struct pull_seal *seal, uint64_t number, char *bytes, size_t len) {
    unsigned char nonce[NONCE_SIZE], *at = (unsigned char *)bytes;
    int written;
    nonce_of(number, nonce);
    if (len < PULL_TAG_SIZE || len > INT_MAX) return false;
    len -= PULL_TAG_SIZE;
    if (EVP_DecryptInit_ex(seal->context, EVP_aes_256_gcm(), NULL, seal->key.bytes, nonce) == 1 &&
        EVP_CIPHER_CTX_ctrl(seal->context, EVP_CTRL_GCM_SET_TAG, PULL_TAG_SIZE, at + len) == 1 &&
        EVP_DecryptUpdate(seal->context, at, &written, at, (int)len) == 1 &&
        EVP_DecryptFinal_ex(seal->context, at + written, &written) == 1)
        return true;
    ERR_clear_error(); /* connections of this thread would take it for theirs */
    return false;
}
#else
bool pull_key_new(struct pull_key *key) {
    return false;
}
void pull_key_forget(struct pull_key *key) {}
struct pull_seal *pull_seal_new(const struct pull_key *key) {
    return NULL;
}
void pull_seal_free(struct pull_seal *seal) {}
bool pull_seal_close(struct pull_seal *seal, uint64_t number, const char *text, size_t len, char *sealed) {
    return false;
}
bool pull_seal_open(struct pull_seal *seal, uint64_t number, char *bytes, size_t len) {
    return false;
}
#endif
