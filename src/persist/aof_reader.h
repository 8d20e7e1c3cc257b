/* aof_reader.h: the commands of an append-only file, from a source.
 *
 * A file is a sequence of records, and may begin with an RDB file (rdb_is_magic() tells; rdb_load() reads it from the
 * same source, and leaves the source where the records begin):
 *
 *     *2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n     a command, as a client sends it
 *     #TS:1700000000\r\n                    an annotation: the next commands were executed at that Unix time, in
 * seconds #…\r\n                                another annotation, which has no meaning
 *
 * Commands between MULTI and EXEC belong together. Where a file ends inside a record or a transaction (the server or
 * the machine stopped while it was written), what is good ends before that record or that MULTI: there it may be cut.
 *
 *     while ((record = aof_reader_next(&reader)) == AOF_COMMAND || record == AOF_ANNOTATION)
 *         if (record == AOF_COMMAND) execute reader.argv[0..argc)
 *
 * A command that lies in the window of the source whole is not copied. Large arguments are received into blobs. */
#ifndef PERSIST_AOF_READER_H
#define PERSIST_AOF_READER_H
#include "lib/blob.h"
#include "persist/source.h"

enum { AOF_BLOB_MIN = 16 * 1024 };

enum aof_record {
    AOF_COMMAND,
    AOF_ANNOTATION,
    AOF_END,       /* of a file that is good */
    AOF_TRUNCATED, /* the file ends inside a record or a transaction */
    AOF_DAMAGED,   /* bytes that are no record */
    AOF_FAILED     /* reading failed, or memory is short: source->error and source->reason */
};

struct aof_reader {
    struct source *source;
    /* Of a command (argc may be 0: nothing to execute); valid until the next call. blobs[i] holds argv[i], or is NULL:
     * the reader's reference. */
    struct slice *argv;
    struct blob **blobs;
    int argc;
    int64_t timestamp;      /* of the last annotation that has one; 0: none yet */
    bool in_transaction;    /* the last command was MULTI, or one behind it; the EXEC no more */
    uint64_t record_offset; /* where the last record begins */
    uint64_t good_offset;   /* behind the last record that is not in an open transaction */
    uint64_t line;          /* lines of commands read so far, and one */
    uint64_t part_offset;   /* where the part of a record begins that was read last: of a failure, the bad one */
    char reason[SOURCE_REASON_MAX]; /* of AOF_TRUNCATED and AOF_DAMAGED */
    /* private */
    int capacity;
    struct source_buffer pool;
    size_t pool_len;
};

void aof_reader_init(struct aof_reader *reader, struct source *source);
void aof_reader_free(struct aof_reader *reader);
enum aof_record aof_reader_next(struct aof_reader *reader);
#endif
