/* siphash.h: SipHash-1-3 (Aumasson, Bernstein 2012), the keyed hash of all tables: a client that does not know the key
 * cannot choose colliding keys. siphash_nocase() ignores ASCII case. */
#pragma once
#include <stddef.h>
#include <stdint.h>
uint64_t siphash(const void *data, size_t len, const uint8_t key[16]);
uint64_t siphash_nocase(const void *data, size_t len, const uint8_t key[16]);
