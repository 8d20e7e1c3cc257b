/* capabilities.h: names in REPLCONF capa that both sides know; pull/wire.h has others. */
#pragma once

#define REPL_OWN_CAPABILITY         "slot-chunks"       /* commands that only servers of ours know: feed.h */
#define REPL_NO_CHECKSUM_CAPABILITY "skip-rdb-checksum" /* Valkey's: see copy_needs_no_checksum() */
