/* transfer.h: the transfers of direct placement that are in progress: their limits, their end, and statistics.
 *
 * A transfer holds a blob until the device is done with it (net/placement.h). Three limits bound that: transfers of a
 * client (blob-max-client-transfers), transfers in total (blob-max-transfers), and bytes of the blobs in total
 * (blob-max-transfer-memory). A client that would exceed one waits, and its requests behind wait with it. A client of
 * which no transfer ends for blob-transfer-timeout is closed: its device neither takes bytes nor fails, or its process
 * does not read replies. Otherwise a frozen client would use up the limits that all clients share.
 *
 * Main thread, except that a transfer ends on the thread of its connection. */
#pragma once
#include "net/placement.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/server.h"
#include "server/stats/info.h"

struct transfer;
/* Reports the end of a transfer: `error` as in net/placement.h. Called from the loop, within or outside of a call; the
 * transfer is freed when it returns. */
typedef void transfer_ended(void *context, int error);

/* Whether the client may begin a transfer of `bytes`. If not, it waits, and its command is called again later. */
bool transfer_admit(struct call *call, uint64_t bytes);
/* Whether one could begin ahead at this moment: such transfers leave half of the memory to others. */
bool transfer_may_begin_ahead(const struct client *client, uint64_t bytes);
/* Begins a transfer of the client, and takes over a reference to the blob. It reads the client's memory if `ended` is
 * given, and starts with transfer_flush(); otherwise it writes to it: then it is part of the reply, before what is
 * written next. */
struct transfer *transfer_begin(struct call *call, struct blob *blob, const struct placement_range *ranges, int count,
                                transfer_ended *ended, void *context);
void transfer_flush(struct client *client);
/* The context is gone: `ended` will not be called. */
void transfer_forget(struct transfer *transfer);

void transfer_set_overtaken(void); /* counts it */
void transfer_set_ahead(void);     /* counts it */
extern const struct config_option blob_options[];
extern const struct info_section blob_sections[];
extern const struct server_part transfer_part;
