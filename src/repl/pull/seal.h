/* seal.h: encryption of the chunks of a pulled full synchronization, for replicas whose connections use TLS.
 *
 * A one-sided read takes bytes from the primary's memory, and no record of TLS protects them. So the primary encrypts
 * each chunk before it lies in memory that a peer can read: AES-256 in Galois/Counter Mode (NIST SP 800-38D), with the
 * number of the chunk as the nonce, and the 16 bytes of the tag behind the text. The key is random and made for one
 * snapshot, so no nonce repeats. Each replica gets it in the header of the snapshot (pull/wire.h), inside its TLS
 * session. A chunk that was changed, exchanged for another one or repeated fails its tag. The number of chunks and of
 * bytes comes through the TLS connection too, so a missing chunk is noticed.
 *
 * Rejected: a key from the exporter of the TLS session (RFC 5705). Several replicas read the same chunks, and each has
 * a session of its own.
 *
 * Each seal belongs to one thread or process. Without TLS built in, pull_key_new() fails. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PULL_KEY_SIZE = 32, PULL_TAG_SIZE = 16 };
struct pull_key {
    unsigned char bytes[PULL_KEY_SIZE];
};
bool pull_key_new(struct pull_key *key); /* false: there are no random bytes */
void pull_key_forget(struct pull_key *key);

struct pull_seal;
/* Copies the key. NULL: out of memory, or built without TLS. */
struct pull_seal *pull_seal_new(const struct pull_key *key);
void pull_seal_free(struct pull_seal *seal); /* NULL is accepted */
/* Encrypts `len` bytes of chunk `number` from `text` to `sealed`, which gets PULL_TAG_SIZE bytes more. */
bool pull_seal_close(struct pull_seal *seal, uint64_t number, const char *text, size_t len, char *sealed);
/* Decrypts `len` bytes, the tag included, in place. False: they are not those of chunk `number`, and not to be used. */
bool pull_seal_open(struct pull_seal *seal, uint64_t number, char *bytes, size_t len);
