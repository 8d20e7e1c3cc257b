/* aof_reader.h: reads the commands of an append-only file from a source.
 *
 * A file is a list of records. It may begin with an RDB file (see rdb_is_magic()): rdb_load() reads it from the same
 * source and leaves the source at the first record.
 *
 *     *2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n     a command, as a client sends it
 *     #TS:1700000000\r\n                    an annotation: Unix time of the execution of the next commands
 *     #…\r\n                                another annotation, which is ignored
 *
 * Commands between MULTI and EXEC are a transaction. If a file ends inside a record or a transaction (the server or the
 * machine stopped while writing), the valid part ends before that record or that MULTI, and the file may be truncated
 * there.
 *
 *     while ((record = aof_reader_next(&reader)) == AOF_COMMAND || record == AOF_ANNOTATION)
 *         if (record == AOF_COMMAND) execute reader.argv[0..argc)
 *
 * A command that is in the source's window as a whole is not copied. Large arguments are read into blobs. */
#pragma once
#include "formats/source.h"
#include "lib/text/blob.h"

enum { AOF_BLOB_MIN = 16 * 1024 };

enum aof_record {
    AOF_COMMAND,
    AOF_ANNOTATION,
    AOF_END,       /* the end of a valid file */
    AOF_TRUNCATED, /* the file ends inside a record or a transaction */
    AOF_DAMAGED,   /* the bytes are not a record */
    AOF_FAILED     /* reading failed or out of memory: source->error and source->reason */
};

struct aof_reader {
    struct source *source;
    /* The arguments of a command (argc may be 0: nothing to execute); valid until the next call. blobs[i] is the blob
     * that holds argv[i], or NULL; the reader owns the reference. */
    struct slice *argv;
    struct blob **blobs;
    int argc;
    int64_t timestamp;              /* of the last annotation that has one; 0: none yet */
    bool in_transaction;            /* between MULTI and EXEC; false after the EXEC */
    uint64_t record_offset;         /* start of the last record */
    uint64_t good_offset;           /* end of the last record outside an open transaction */
    uint64_t line;                  /* number of the current line, from 1 */
    uint64_t part_offset;           /* start of the last part of a record; after a failure, the invalid one */
    char reason[SOURCE_REASON_MAX]; /* for AOF_TRUNCATED and AOF_DAMAGED */
    /* private */
    int capacity;
    struct source_buffer pool;
    size_t pool_len;
};

void aof_reader_init(struct aof_reader *reader, struct source *source);
void aof_reader_free(struct aof_reader *reader);
enum aof_record aof_reader_next(struct aof_reader *reader);
