/* tls.h: TLS over RDMA, with OpenSSL. Compiled in with BUILD_RDMA=yes and BUILD_TLS=yes. tls.c has the data path,
 * tls_handshake.c handshakes and listening.
 *
 * transport_rdma_tls is one layer in front of transport_rdma. A connection of it owns a connection of transport_rdma,
 * the carrier, and is its user through net/connection.h like any other. The layers below know nothing of TLS, and the
 * users above get plain text from conn_peek() and write plain text to conn->out. So the ring, polling, the base
 * protocol and its clients, I/O threads and untrusted clients work as they do without TLS. Contexts, options and
 * client certificates are those of net/tls.h. The name of the transport is "rdma-tls".
 *
 * What crosses the fabric
 *   The stream of the carrier holds TLS records and nothing else, so all that its WRITEs carry is encrypted and
 *   authenticated. Outside the stream there are the control messages (wire.h): sizes, addresses and keys of buffers,
 *   counts of bytes, and the polled words. They carry nothing of users and decide nothing but where the bytes of the
 *   stream lie and how many have arrived. The transport checks them against its own buffers. A forged one moves,
 *   repeats or drops bytes of records: then the authentication of a record fails, and the connection ends.
 *   Values in registered memory (values.h) are never sent from there: a shared blob is queued in this layer, and each
 *   record is encrypted from it. One-sided reads (read.h) go past the records: the owner of a window on such a
 *   connection promises with RDMA_WINDOW_OFFERED_SEALED that it holds encrypted bytes only.
 *
 * Decryption
 *   A peer knows the key of the receive buffer and may write to it at any moment, also while its bytes are decrypted.
 *   If AES-GCM worked in place on that memory, a peer (or another one that guesses the key) could replace the bytes
 *   after they were authenticated, or between two passes over them. So each byte is read from the announced memory
 *   exactly once, by the carrier, which exposes a copy (buffer.h), and its length, its tag and its content are taken
 *   from there. What the peer writes later changes nothing; what it writes earlier corrupts its own record. The copy
 *   replaces the one that a socket makes in the kernel.
 *   The plain text goes to the loop's shared buffer, or to where the owner wants it (conn_receive_into()).
 *   Rejected: decrypting from the ring straight into private memory. OpenSSL's TLS cannot; a record layer of our own
 *   would have to prove that no implementation of the cipher reads a byte twice.
 *
 * Encryption
 *   A flush encrypts from the chunk or the blob, a record of up to 16 KiB at a time, and OpenSSL's record is written to
 *   the carrier's send memory. When the carrier holds SEALED_MAX bytes that its peer does not take, the rest waits as
 *   plain text. OpenSSL encrypts into a buffer of its own first, so each byte is copied once more, while it is in the
 *   cache. The buffers of a trusted peer's session stay for two seconds after their last use; others have them only
 *   while they hold a part of a record.
 *
 * Clear text
 *   A listener with allows_clear decides by the first byte: 0x16, a handshake record, begins TLS; a connection that
 *   begins with anything else, or is silent until the handshake timeout, is reported as one of transport_rdma.
 *
 * Handshakes (tls_handshake.c)
 *   One step of one handshake runs in each turn of a loop, so that other connections get their turn during a flood.
 *   At most rdma_tls_handshakes_max of a loop are in progress. A further one replaces the oldest that waits for its
 *   peer, if that is older than a second, or else is closed; both are logged. Each ends after
 *   socket_settings.handshake_timeout_ms. They count in socket_stats.
 *
 * End of the stream, names, errors: as in net/tls.h. */
#pragma once
#include "net/connection.h"

extern const struct transport transport_rdma_tls;
/* 1024; tests lower it. */
extern _Atomic uint32_t rdma_tls_handshakes_max;
