/* nodes_file.h: the text of nodes.conf, in which a cluster node keeps what it knows, and of CLUSTER NODES.
 *
 * Pure functions: text to structs and back. Each line is a node; the last one holds the epochs:
 *
 *     <id> <ip>:<port>@<bus port>,<hostname>[,<name>=<value>...] <flags> <primary or -> <ping sent> <pong received>
 *         <epoch> connected|disconnected [<slot> | <first>-<last>]... [[<slot>->-<id>] | [<slot>-<-<id>]]...
 *     vars currentEpoch <n> lastVoteEpoch <n>
 *
 * What Valkey 9.1 writes is read and written again byte for byte. Lines of older versions, back to Redis OSS 3.0, leave
 * out the bus port (it is the port plus 10,000), the hostname, the named values, or values that were not known then.
 * Valkey refuses a file with a name that it does not know, so that nobody can go back to an older version; here such
 * values stay with their node and are written again. */
#pragma once
#include "cluster/protocol/bus_wire.h"
#include "lib/system/file_writer.h"
#include "lib/text/output.h"

struct open_slot {
    struct node_id node; /* that the slot migrates to, or is imported from */
    uint16_t slot;
    bool importing;
};

/* A node. Empty texts and ports of 0 are not set. */
struct node_line {
    struct node_id id, primary, shard; /* zeros: none */
    struct slice address;              /* at most NODE_ADDRESS_MAX - 1 bytes; empty: not known */
    uint16_t tcp_port, tls_port, bus_port, client_tcp_port, client_tls_port;
    struct slice hostname, nodename, client_ipv4, client_ipv6, availability_zone;
    struct slice unknown; /* named values of other versions: ",name=value" each */
    uint16_t flags;       /* enum node_flag: those of the text */
    uint64_t ping_sent_ms, pong_received_ms;
    uint64_t epoch; /* on a replica's line its primary's, not its own */
    bool connected;
    const struct slot_bitmap *slots; /* NULL: none */
    unsigned slot_low, slot_end;     /* printing: they are from slot_low on and below slot_end; 0, 0: anywhere */
    const struct open_slot *open;
    size_t open_count;
};

struct nodes_file {
    struct node_line *lines;
    size_t count, myself; /* index of the own line */
    uint64_t current_epoch, last_vote_epoch;
};

struct nodes_file_error {
    size_t number;     /* of the line, from 1; 0: the fault is that of the file */
    struct slice line; /* points into the text */
    char reason[128];
};

/* Parses a file. The lines point into `text`. `tls`: where a line names neither tcp-port nor tls-port, its port is that
 * of TLS, as nodes with tls-cluster wrote it before Valkey 8. `note` is called for what is ignored, and may be NULL. An
 * empty file has no lines and no error; any other has exactly one line of the node itself. It may give a slot to
 * several nodes: the first one counts. */
typedef void nodes_file_note(void *context, const char *text);
bool nodes_file_parse(struct slice text, bool tls, nodes_file_note *note, void *context, struct nodes_file *file,
                      struct nodes_file_error *error);
void nodes_file_free(struct nodes_file *file);
/* "Unrecoverable error: corrupted cluster config file "<line>". Line 3: <reason>" */
void nodes_file_print_error(struct output *out, const struct nodes_file_error *error);

/* Writes a node, without a line end. In the form of CLUSTER NODES a hostname is all that follows the ports; the caller
 * sets address, hostname and tcp_port to what the client is to see. */
enum node_line_form { NODE_LINE_FILE, NODE_LINE_CLIENT };
void node_line_print(struct output *out, const struct node_line *line, enum node_line_form form);
/* The parts of a line before and behind the times "<ping_sent> <pong_received>", for a caller that writes these. */
void node_line_print_head(struct output *out, const struct node_line *line, enum node_line_form form);
void node_line_print_tail(struct output *out, const struct node_line *line);
/* "master,fail", as in a line; "noflags" if there is none. */
void node_flags_print(struct output *out, unsigned flags);
void nodes_file_print_epochs(struct output *out, uint64_t current_epoch, uint64_t last_vote_epoch);
void nodes_file_print(struct output *out, const struct nodes_file *file);

/* Valkey's lines for the log: another process has locked the file; a step of replacing it has failed. */
enum { NODES_FILE_TEXT_MAX = 512 };
void nodes_file_in_use_text(const char *path, char text[static NODES_FILE_TEXT_MAX]);
void nodes_file_failure_text(const struct file_written *written, char text[static NODES_FILE_TEXT_MAX]);

/* Whether a text may be a named value in a line: an announced address, a node's name, an availability zone. */
bool node_text_valid(struct slice text);
