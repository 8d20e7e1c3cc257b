/* debug.h: how other modules add subcommands to DEBUG, and what a value type provides to DEBUG.
 *
 * Two servers that hold the same data have the same digest, Valkey's included. A digest is 20 bytes into which data is
 * mixed (order matters) or xor-ed (order does not matter). The digest of a key: mix the key, mix the type's number
 * (four bytes, big-endian), mix or xor the value as below, and xor "!!expire!!" if the key expires.
 *
 *   string  mix the value
 *   list    mix each element
 *   set     xor each member
 *   hash    xor, for each field, a fresh digest with field and value mixed. The field's expiration does not count
 *   zset    xor, for each member, a fresh digest with member and score (format_double_digits) mixed
 *   stream  for each entry mix its id ("ms.seq"), then mix each field and value */
#pragma once
#include "lib/hash/sha1.h"
#include "server/command/spec.h"

struct digest {
    unsigned char bytes[SHA1_SIZE];
};
void digest_mix(struct digest *digest, struct slice bytes);
void digest_xor(struct digest *digest, struct slice bytes);

struct debug_value_ops {
    void (*digest)(const struct entry *entry, struct digest *digest);
    struct hashtable *(*table)(const struct entry *entry); /* NULL, or returns NULL: the encoding has no table */
    void (*describe)(const struct entry *entry, bool fast, char *text,
                     size_t size); /* more fields of DEBUG OBJECT, each with a space in front; may be NULL */
};
void debug_register_value(enum value_type type, const struct debug_value_ops *ops);

struct debug_subcommand {
    const char *name;
    int min_arguments, max_arguments; /* after the name; max -1: any number */
    void (*run)(struct call *call);   /* argv[2] is the first argument */
    const char *const *help;          /* lines as in help.h; NULL: not in DEBUG HELP */
};
/* The table ends with name NULL. Its subcommands replace earlier ones of the same name. */
void debug_register(const struct debug_subcommand *subcommands);
/* About clients and their memory; keys, values and the protocol; REPLY-BARRIER, a reply barrier that a test holds and
 * releases; FOLLOW, a connection that receives the propagated commands; RDMA (none in a build without RDMA). */
extern const struct debug_subcommand debug_client_subcommands[], debug_data_subcommands[], debug_barrier_subcommands[],
    debug_follow_subcommands[], rdma_debug_subcommands[];
/* Checks enable-debug-command or enable-module-command and replies with the refusal. `command` is the command's name in
 * capitals. */
bool debug_permitted(struct call *call, int permission, const char *command, const char *option);
/* Replies with an error while a data set is being loaded: subcommands that replace or fill the databases. */
bool debug_refused_by_load(struct call *call);
void debug_reply_unknown(struct call *call); /* the error for an unknown argument */
