/* rdb_opcodes.h: opcodes of RDB files; rdb_file.h describes the data after each. Lower values are types of values. */
#pragma once

enum rdb_opcode {
    RDB_OPCODE_SLOT_IMPORT = 0xf3,
    RDB_OPCODE_SLOT_INFO = 0xf4,
    RDB_OPCODE_FUNCTION2 = 0xf5,
    RDB_OPCODE_FUNCTION_PRE_GA = 0xf6,
    RDB_OPCODE_MODULE_AUX = 0xf7,
    RDB_OPCODE_IDLE = 0xf8,
    RDB_OPCODE_FREQ = 0xf9,
    RDB_OPCODE_AUX = 0xfa,
    RDB_OPCODE_RESIZEDB = 0xfb,
    RDB_OPCODE_EXPIRETIME_MS = 0xfc,
    RDB_OPCODE_EXPIRETIME = 0xfd,
    RDB_OPCODE_SELECTDB = 0xfe,
    RDB_OPCODE_EOF = 0xff
};
enum { RDB_SLOT_IMPORT_NAME = 40 }; /* bytes of the name of a slot migration */
