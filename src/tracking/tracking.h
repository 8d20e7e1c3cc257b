/* tracking.h: client-side caching. A client that keeps copies of keys gets an invalidation message when one of them
 * changes.
 *
 * CLIENT TRACKING ON makes a client a tracker, in one of two modes:
 *
 * - Default: the server remembers which client has read which key, in a table (tracked_keys.h). The first change of the
 *   key removes it from the table and sends the message to the clients that have read it. OPTIN and OPTOUT select the
 *   commands whose keys are remembered. The table has names of keys without their database, so a change in another
 *   database also invalidates them.
 * - BCAST: the server does not remember what clients read. A client names prefixes (broadcast.h) and gets the names of
 *   all changed keys with these prefixes, collected until the event loop waits.
 *
 * A message goes to the client itself as a RESP3 push, after the reply if its own command made the change. With
 * REDIRECT it goes to another client: as a push, or in RESP2 as a message of the channel __redis__:invalidate if that
 * client has subscriptions. Otherwise the message is dropped. FLUSHALL, FLUSHDB and a new data set invalidate all keys
 * by one message with a null. SWAPDB sends nothing, as in Valkey.
 *
 * Messages are pushes (client_push), so the reply barrier, output limits, I/O threads and all transports treat them
 * like messages of channels. While no client tracks keys, no listener is installed. */
#pragma once
#include "server/command/command.h"

extern const struct command_spec tracking_commands[]; /* subcommands of CLIENT */
struct feature;
extern const struct feature tracking_feature;
