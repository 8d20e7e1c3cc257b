/* valkeymodule.h: the interface between the server and modules, for authors of modules.
 *
 * A module is a shared library. It includes this header in each of its files, and defines
 *
 *     int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc);
 *     int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx);    optional: VALKEYMODULE_ERR refuses MODULE UNLOAD
 *
 * OnLoad calls ValkeyModule_Init() before anything else. That call asks the server for each function of the list below
 * by its name, and stores the addresses in variables that are called like functions: ValkeyModule_CreateCommand(…).
 * Nothing is linked. A server that does not know a name leaves the variable NULL.
 *
 * The interface is binary: names, values and layouts here are those of Valkey 9.1, so a compiled module runs with
 * either server. Layouts of structs with a `version` member grow at their end only. docs/modules.md explains how to
 * write and load a module; redismodule.h, which is made of this header, has the names that begin with RedisModule. */
#ifndef VALKEYMODULE_H
#define VALKEYMODULE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef long long mstime_t; /* milliseconds */
typedef long long ustime_t; /* microseconds */

/* Results. */
#define VALKEYMODULE_OK               0
#define VALKEYMODULE_ERR              1
#define VALKEYMODULE_AUTH_HANDLED     0
#define VALKEYMODULE_AUTH_NOT_HANDLED 1

/* Versions. */
#define VALKEYMODULE_APIVER_1            1
#define VALKEYMODULE_TYPE_METHOD_VERSION 5

/* Modes of OpenKey. */
#define VALKEYMODULE_READ               (1 << 0)
#define VALKEYMODULE_WRITE              (1 << 1)
#define VALKEYMODULE_OPEN_KEY_NOTOUCH   (1 << 16)
#define VALKEYMODULE_OPEN_KEY_NONOTIFY  (1 << 17)
#define VALKEYMODULE_OPEN_KEY_NOSTATS   (1 << 18)
#define VALKEYMODULE_OPEN_KEY_NOEXPIRE  (1 << 19)
#define VALKEYMODULE_OPEN_KEY_NOEFFECTS (1 << 20)

/* Ends of a list. */
#define VALKEYMODULE_LIST_HEAD 0
#define VALKEYMODULE_LIST_TAIL 1

/* Types of keys. */
#define VALKEYMODULE_KEYTYPE_EMPTY  0
#define VALKEYMODULE_KEYTYPE_STRING 1
#define VALKEYMODULE_KEYTYPE_LIST   2
#define VALKEYMODULE_KEYTYPE_HASH   3
#define VALKEYMODULE_KEYTYPE_SET    4
#define VALKEYMODULE_KEYTYPE_ZSET   5
#define VALKEYMODULE_KEYTYPE_MODULE 6
#define VALKEYMODULE_KEYTYPE_STREAM 7

/* Types of the replies of Call. */
#define VALKEYMODULE_REPLY_UNKNOWN         -1
#define VALKEYMODULE_REPLY_STRING          0
#define VALKEYMODULE_REPLY_ERROR           1
#define VALKEYMODULE_REPLY_INTEGER         2
#define VALKEYMODULE_REPLY_ARRAY           3
#define VALKEYMODULE_REPLY_NULL            4
#define VALKEYMODULE_REPLY_MAP             5
#define VALKEYMODULE_REPLY_SET             6
#define VALKEYMODULE_REPLY_BOOL            7
#define VALKEYMODULE_REPLY_DOUBLE          8
#define VALKEYMODULE_REPLY_BIG_NUMBER      9
#define VALKEYMODULE_REPLY_VERBATIM_STRING 10
#define VALKEYMODULE_REPLY_ATTRIBUTE       11
#define VALKEYMODULE_REPLY_PROMISE         12
#define VALKEYMODULE_REPLY_SIMPLE_STRING   13
#define VALKEYMODULE_REPLY_ARRAY_NULL      14

/* Lengths that are set later. */
#define VALKEYMODULE_POSTPONED_ARRAY_LEN -1
#define VALKEYMODULE_POSTPONED_LEN       -1

/* No expiry. */
#define VALKEYMODULE_NO_EXPIRE -1

/* Flags of ZsetAdd: given, and returned. */
#define VALKEYMODULE_ZADD_XX      (1 << 0)
#define VALKEYMODULE_ZADD_NX      (1 << 1)
#define VALKEYMODULE_ZADD_ADDED   (1 << 2)
#define VALKEYMODULE_ZADD_UPDATED (1 << 3)
#define VALKEYMODULE_ZADD_NOP     (1 << 4)
#define VALKEYMODULE_ZADD_GT      (1 << 5)
#define VALKEYMODULE_ZADD_LT      (1 << 6)

/* Flags of HashSet and HashGet. */
#define VALKEYMODULE_HASH_NONE      0
#define VALKEYMODULE_HASH_NX        (1 << 0)
#define VALKEYMODULE_HASH_XX        (1 << 1)
#define VALKEYMODULE_HASH_CFIELDS   (1 << 2)
#define VALKEYMODULE_HASH_EXISTS    (1 << 3)
#define VALKEYMODULE_HASH_COUNT_ALL (1 << 4)

/* Flags of options. */
#define VALKEYMODULE_CONFIG_DEFAULT      0
#define VALKEYMODULE_CONFIG_IMMUTABLE    (1ULL << 0)
#define VALKEYMODULE_CONFIG_SENSITIVE    (1ULL << 1)
#define VALKEYMODULE_CONFIG_HIDDEN       (1ULL << 4)
#define VALKEYMODULE_CONFIG_PROTECTED    (1ULL << 5)
#define VALKEYMODULE_CONFIG_DENY_LOADING (1ULL << 6)
#define VALKEYMODULE_CONFIG_MEMORY       (1ULL << 7)
#define VALKEYMODULE_CONFIG_BITFLAGS     (1ULL << 8)
#define VALKEYMODULE_CONFIG_UNSIGNED     (1ULL << 9)

/* Streams. */
#define VALKEYMODULE_STREAM_ADD_AUTOID         (1 << 0)
#define VALKEYMODULE_STREAM_ITERATOR_EXCLUSIVE (1 << 0)
#define VALKEYMODULE_STREAM_ITERATOR_REVERSE   (1 << 1)
#define VALKEYMODULE_STREAM_TRIM_APPROX        (1 << 0)

/* GetContextFlags. */
#define VALKEYMODULE_CTX_FLAGS_LUA                     (1 << 0)
#define VALKEYMODULE_CTX_FLAGS_MULTI                   (1 << 1)
#define VALKEYMODULE_CTX_FLAGS_PRIMARY                 (1 << 2)
#define VALKEYMODULE_CTX_FLAGS_REPLICA                 (1 << 3)
#define VALKEYMODULE_CTX_FLAGS_READONLY                (1 << 4)
#define VALKEYMODULE_CTX_FLAGS_CLUSTER                 (1 << 5)
#define VALKEYMODULE_CTX_FLAGS_AOF                     (1 << 6)
#define VALKEYMODULE_CTX_FLAGS_RDB                     (1 << 7)
#define VALKEYMODULE_CTX_FLAGS_MAXMEMORY               (1 << 8)
#define VALKEYMODULE_CTX_FLAGS_EVICT                   (1 << 9)
#define VALKEYMODULE_CTX_FLAGS_OOM                     (1 << 10)
#define VALKEYMODULE_CTX_FLAGS_OOM_WARNING             (1 << 11)
#define VALKEYMODULE_CTX_FLAGS_REPLICATED              (1 << 12)
#define VALKEYMODULE_CTX_FLAGS_LOADING                 (1 << 13)
#define VALKEYMODULE_CTX_FLAGS_REPLICA_IS_STALE        (1 << 14)
#define VALKEYMODULE_CTX_FLAGS_REPLICA_IS_CONNECTING   (1 << 15)
#define VALKEYMODULE_CTX_FLAGS_REPLICA_IS_TRANSFERRING (1 << 16)
#define VALKEYMODULE_CTX_FLAGS_REPLICA_IS_ONLINE       (1 << 17)
#define VALKEYMODULE_CTX_FLAGS_ACTIVE_CHILD            (1 << 18)
#define VALKEYMODULE_CTX_FLAGS_MULTI_DIRTY             (1 << 19)
#define VALKEYMODULE_CTX_FLAGS_IS_CHILD                (1 << 20)
#define VALKEYMODULE_CTX_FLAGS_DENY_BLOCKING           (1 << 21)
#define VALKEYMODULE_CTX_FLAGS_RESP3                   (1 << 22)
#define VALKEYMODULE_CTX_FLAGS_ASYNC_LOADING           (1 << 23)
#define VALKEYMODULE_CTX_FLAGS_SERVER_STARTUP          (1 << 24)
#define VALKEYMODULE_CTX_FLAGS_SLOT_IMPORT_CLIENT      (1 << 25)
#define VALKEYMODULE_CTX_FLAGS_SLOT_EXPORT_CLIENT      (1 << 26)

/* Classes of keyspace events. */
#define VALKEYMODULE_NOTIFY_KEYSPACE (1 << 0)
#define VALKEYMODULE_NOTIFY_KEYEVENT (1 << 1)
#define VALKEYMODULE_NOTIFY_GENERIC  (1 << 2)
#define VALKEYMODULE_NOTIFY_STRING   (1 << 3)
#define VALKEYMODULE_NOTIFY_LIST     (1 << 4)
#define VALKEYMODULE_NOTIFY_SET      (1 << 5)
#define VALKEYMODULE_NOTIFY_HASH     (1 << 6)
#define VALKEYMODULE_NOTIFY_ZSET     (1 << 7)
#define VALKEYMODULE_NOTIFY_EXPIRED  (1 << 8)
#define VALKEYMODULE_NOTIFY_EVICTED  (1 << 9)
#define VALKEYMODULE_NOTIFY_STREAM   (1 << 10)
#define VALKEYMODULE_NOTIFY_KEY_MISS (1 << 11)
#define VALKEYMODULE_NOTIFY_LOADED   (1 << 12)
#define VALKEYMODULE_NOTIFY_MODULE   (1 << 13)
#define VALKEYMODULE_NOTIFY_NEW      (1 << 14)
#define VALKEYMODULE_NOTIFY_ALL                                                                                        \
    (VALKEYMODULE_NOTIFY_GENERIC | VALKEYMODULE_NOTIFY_STRING | VALKEYMODULE_NOTIFY_LIST | VALKEYMODULE_NOTIFY_SET |   \
     VALKEYMODULE_NOTIFY_HASH | VALKEYMODULE_NOTIFY_ZSET | VALKEYMODULE_NOTIFY_EXPIRED | VALKEYMODULE_NOTIFY_EVICTED | \
     VALKEYMODULE_NOTIFY_STREAM | VALKEYMODULE_NOTIFY_MODULE)

/* Values. */
#define VALKEYMODULE_HASH_DELETE        ((ValkeyModuleString *)(long)1)
#define VALKEYMODULE_ERRORMSG_WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define VALKEYMODULE_POSITIVE_INFINITE  (1.0 / 0.0)
#define VALKEYMODULE_NEGATIVE_INFINITE  (-1.0 / 0.0)

/* Cluster. */
#define VALKEYMODULE_NODE_ID_LEN                 40
#define VALKEYMODULE_NODE_MYSELF                 (1 << 0)
#define VALKEYMODULE_NODE_PRIMARY                (1 << 1)
#define VALKEYMODULE_NODE_REPLICA                (1 << 2)
#define VALKEYMODULE_NODE_PFAIL                  (1 << 3)
#define VALKEYMODULE_NODE_FAIL                   (1 << 4)
#define VALKEYMODULE_NODE_NOFAILOVER             (1 << 5)
#define VALKEYMODULE_CLUSTER_FLAG_NONE           0
#define VALKEYMODULE_CLUSTER_FLAG_NO_FAILOVER    (1 << 1)
#define VALKEYMODULE_CLUSTER_FLAG_NO_REDIRECTION (1 << 2)

/* Log. */
#define VALKEYMODULE_LOGLEVEL_DEBUG   "debug"
#define VALKEYMODULE_LOGLEVEL_VERBOSE "verbose"
#define VALKEYMODULE_LOGLEVEL_NOTICE  "notice"
#define VALKEYMODULE_LOGLEVEL_WARNING "warning"

/* Auxiliary data of types in RDB files. */
#define VALKEYMODULE_AUX_BEFORE_RDB (1 << 0)
#define VALKEYMODULE_AUX_AFTER_RDB  (1 << 1)

/* Yield. */
#define VALKEYMODULE_YIELD_FLAG_NONE    (1 << 0)
#define VALKEYMODULE_YIELD_FLAG_CLIENTS (1 << 1)

/* BlockClientOnKeysWithFlags. */
#define VALKEYMODULE_BLOCK_UNBLOCK_DEFAULT (0)
#define VALKEYMODULE_BLOCK_UNBLOCK_DELETED (1 << 0)

/* RegisterCommandFilter. */
#define VALKEYMODULE_CMDFILTER_NOSELF (1 << 0)

/* SetModuleOptions. */
#define VALKEYMODULE_OPTIONS_HANDLE_IO_ERRORS                    (1 << 0)
#define VALKEYMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED          (1 << 1)
#define VALKEYMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD              (1 << 2)
#define VALKEYMODULE_OPTIONS_ALLOW_NESTED_KEYSPACE_NOTIFICATIONS (1 << 3)
#define VALKEYMODULE_OPTIONS_SKIP_COMMAND_VALIDATION             (1 << 4)
#define VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION        (1 << 5)

/* Arguments of commands. */
#define VALKEYMODULE_CMD_ARG_NONE           (0)
#define VALKEYMODULE_CMD_ARG_OPTIONAL       (1 << 0)
#define VALKEYMODULE_CMD_ARG_MULTIPLE       (1 << 1)
#define VALKEYMODULE_CMD_ARG_MULTIPLE_TOKEN (1 << 2)

/* Keys and channels of commands. */
#define VALKEYMODULE_CMD_KEY_RO              (1ULL << 0)
#define VALKEYMODULE_CMD_KEY_RW              (1ULL << 1)
#define VALKEYMODULE_CMD_KEY_OW              (1ULL << 2)
#define VALKEYMODULE_CMD_KEY_RM              (1ULL << 3)
#define VALKEYMODULE_CMD_KEY_ACCESS          (1ULL << 4)
#define VALKEYMODULE_CMD_KEY_UPDATE          (1ULL << 5)
#define VALKEYMODULE_CMD_KEY_INSERT          (1ULL << 6)
#define VALKEYMODULE_CMD_KEY_DELETE          (1ULL << 7)
#define VALKEYMODULE_CMD_KEY_NOT_KEY         (1ULL << 8)
#define VALKEYMODULE_CMD_KEY_INCOMPLETE      (1ULL << 9)
#define VALKEYMODULE_CMD_KEY_VARIABLE_FLAGS  (1ULL << 10)
#define VALKEYMODULE_CMD_CHANNEL_PATTERN     (1ULL << 0)
#define VALKEYMODULE_CMD_CHANNEL_PUBLISH     (1ULL << 1)
#define VALKEYMODULE_CMD_CHANNEL_SUBSCRIBE   (1ULL << 2)
#define VALKEYMODULE_CMD_CHANNEL_UNSUBSCRIBE (1ULL << 3)

/* EventLoopAdd. */
#define VALKEYMODULE_EVENTLOOP_READABLE 1
#define VALKEYMODULE_EVENTLOOP_WRITABLE 2

/* Server events. */
#define VALKEYMODULE_EVENT_REPLICATION_ROLE_CHANGED    0
#define VALKEYMODULE_EVENT_PERSISTENCE                 1
#define VALKEYMODULE_EVENT_FLUSHDB                     2
#define VALKEYMODULE_EVENT_LOADING                     3
#define VALKEYMODULE_EVENT_CLIENT_CHANGE               4
#define VALKEYMODULE_EVENT_SHUTDOWN                    5
#define VALKEYMODULE_EVENT_REPLICA_CHANGE              6
#define VALKEYMODULE_EVENT_PRIMARY_LINK_CHANGE         7
#define VALKEYMODULE_EVENT_CRON_LOOP                   8
#define VALKEYMODULE_EVENT_MODULE_CHANGE               9
#define VALKEYMODULE_EVENT_LOADING_PROGRESS            10
#define VALKEYMODULE_EVENT_SWAPDB                      11
#define VALKEYMODULE_EVENT_REPL_BACKUP                 12
#define VALKEYMODULE_EVENT_FORK_CHILD                  13
#define VALKEYMODULE_EVENT_REPL_ASYNC_LOAD             14
#define VALKEYMODULE_EVENT_EVENTLOOP                   15
#define VALKEYMODULE_EVENT_CONFIG                      16
#define VALKEYMODULE_EVENT_KEY                         17
#define VALKEYMODULE_EVENT_AUTHENTICATION_ATTEMPT      18
#define VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION       19
#define VALKEYMODULE_EVENT_COMMAND_RESULT_SUCCESS      20
#define VALKEYMODULE_EVENT_COMMAND_RESULT_FAILURE      21
#define VALKEYMODULE_EVENT_COMMAND_RESULT_REJECTED     22
#define VALKEYMODULE_EVENT_COMMAND_RESULT_ACL_REJECTED 23

/* Their subevents. */
#define VALKEYMODULE_SUBEVENT_PERSISTENCE_RDB_START                  0
#define VALKEYMODULE_SUBEVENT_PERSISTENCE_AOF_START                  1
#define VALKEYMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START             2
#define VALKEYMODULE_SUBEVENT_PERSISTENCE_ENDED                      3
#define VALKEYMODULE_SUBEVENT_PERSISTENCE_FAILED                     4
#define VALKEYMODULE_SUBEVENT_PERSISTENCE_SYNC_AOF_START             5
#define VALKEYMODULE_SUBEVENT_LOADING_RDB_START                      0
#define VALKEYMODULE_SUBEVENT_LOADING_AOF_START                      1
#define VALKEYMODULE_SUBEVENT_LOADING_REPL_START                     2
#define VALKEYMODULE_SUBEVENT_LOADING_ENDED                          3
#define VALKEYMODULE_SUBEVENT_LOADING_FAILED                         4
#define VALKEYMODULE_SUBEVENT_CLIENT_CHANGE_CONNECTED                0
#define VALKEYMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED             1
#define VALKEYMODULE_SUBEVENT_PRIMARY_LINK_UP                        0
#define VALKEYMODULE_SUBEVENT_PRIMARY_LINK_DOWN                      1
#define VALKEYMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE                  0
#define VALKEYMODULE_SUBEVENT_REPLICA_CHANGE_OFFLINE                 1
#define VALKEYMODULE_EVENT_REPLROLECHANGED_NOW_PRIMARY               0
#define VALKEYMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA               1
#define VALKEYMODULE_SUBEVENT_FLUSHDB_START                          0
#define VALKEYMODULE_SUBEVENT_FLUSHDB_END                            1
#define VALKEYMODULE_SUBEVENT_MODULE_LOADED                          0
#define VALKEYMODULE_SUBEVENT_MODULE_UNLOADED                        1
#define VALKEYMODULE_SUBEVENT_CONFIG_CHANGE                          0
#define VALKEYMODULE_SUBEVENT_LOADING_PROGRESS_RDB                   0
#define VALKEYMODULE_SUBEVENT_LOADING_PROGRESS_AOF                   1
#define VALKEYMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED                0
#define VALKEYMODULE_SUBEVENT_REPL_ASYNC_LOAD_ABORTED                1
#define VALKEYMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED              2
#define VALKEYMODULE_SUBEVENT_FORK_CHILD_BORN                        0
#define VALKEYMODULE_SUBEVENT_FORK_CHILD_DIED                        1
#define VALKEYMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP                 0
#define VALKEYMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP                  1
#define VALKEYMODULE_SUBEVENT_KEY_DELETED                            0
#define VALKEYMODULE_SUBEVENT_KEY_EXPIRED                            1
#define VALKEYMODULE_SUBEVENT_KEY_EVICTED                            2
#define VALKEYMODULE_SUBEVENT_KEY_OVERWRITTEN                        3
#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_IMPORT_STARTED   0
#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_STARTED   1
#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_IMPORT_ABORTED   2
#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_ABORTED   3
#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_IMPORT_COMPLETED 4
#define VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_COMPLETED 5

/* GetClientInfoById. */
#define VALKEYMODULE_CLIENTINFO_FLAG_SSL                (1 << 0)
#define VALKEYMODULE_CLIENTINFO_FLAG_PUBSUB             (1 << 1)
#define VALKEYMODULE_CLIENTINFO_FLAG_BLOCKED            (1 << 2)
#define VALKEYMODULE_CLIENTINFO_FLAG_TRACKING           (1 << 3)
#define VALKEYMODULE_CLIENTINFO_FLAG_UNIXSOCKET         (1 << 4)
#define VALKEYMODULE_CLIENTINFO_FLAG_MULTI              (1 << 5)
#define VALKEYMODULE_CLIENTINFO_FLAG_READONLY           (1 << 6)
#define VALKEYMODULE_CLIENTINFO_FLAG_PRIMARY            (1 << 7)
#define VALKEYMODULE_CLIENTINFO_FLAG_REPLICA            (1 << 8)
#define VALKEYMODULE_CLIENTINFO_FLAG_MONITOR            (1 << 9)
#define VALKEYMODULE_CLIENTINFO_FLAG_MODULE             (1 << 10)
#define VALKEYMODULE_CLIENTINFO_FLAG_AUTHENTICATED      (1 << 11)
#define VALKEYMODULE_CLIENTINFO_FLAG_EVER_AUTHENTICATED (1 << 12)
#define VALKEYMODULE_CLIENTINFO_FLAG_FAKE               (1 << 13)
#define VALKEYMODULE_CLIENTINFO_VERSION                 1

/* Versions of the data of events. */
#define VALKEYMODULE_REPLICATIONINFO_VERSION          1
#define VALKEYMODULE_FLUSHINFO_VERSION                1
#define VALKEYMODULE_MODULE_CHANGE_VERSION            1
#define VALKEYMODULE_CONFIGCHANGE_VERSION             1
#define VALKEYMODULE_CRON_LOOP_VERSION                1
#define VALKEYMODULE_LOADING_PROGRESS_VERSION         1
#define VALKEYMODULE_SWAPDBINFO_VERSION               1
#define VALKEYMODULE_KEYINFO_VERSION                  1
#define VALKEYMODULE_AUTHENTICATION_INFO_VERSION      1
#define VALKEYMODULE_ATOMICSLOTMIGRATION_INFO_VERSION 1
#define VALKEYMODULE_COMMANDRESULTINFO_VERSION        1

/* Flags of calls. */
#define VALKEYMODULE_CALL_ARGV_REPLICATE         (1 << 0)
#define VALKEYMODULE_CALL_ARGV_NO_AOF            (1 << 1)
#define VALKEYMODULE_CALL_ARGV_NO_REPLICAS       (1 << 2)
#define VALKEYMODULE_CALL_ARGV_RESP_3            (1 << 3)
#define VALKEYMODULE_CALL_ARGV_RESP_AUTO         (1 << 4)
#define VALKEYMODULE_CALL_ARGV_RUN_AS_USER       (1 << 5)
#define VALKEYMODULE_CALL_ARGV_SCRIPT_MODE       (1 << 6)
#define VALKEYMODULE_CALL_ARGV_NO_WRITES         (1 << 7)
#define VALKEYMODULE_CALL_ARGV_ERRORS_AS_REPLIES (1 << 8)
#define VALKEYMODULE_CALL_ARGV_RESPECT_DENY_OOM  (1 << 9)
#define VALKEYMODULE_CALL_ARGV_DRY_RUN           (1 << 10)
#define VALKEYMODULE_CALL_ARGV_ALLOW_BLOCK       (1 << 11)
#define VALKEYMODULE_CALL_ARGV_REPLY_EXACT       (1 << 12)

/* Scripting engines. */
#define VALKEYMODULE_SCRIPTING_ENGINE_ABI_COMPILED_FUNCTION_VERSION 1UL
#define VALKEYMODULE_SCRIPTING_ENGINE_ABI_MEMORY_INFO_VERSION       1UL
#define VALKEYMODULE_SCRIPTING_ENGINE_ABI_DEBUGGER_COMMAND_VERSION  1UL
#define VALKEYMODULE_SCRIPTING_ENGINE_ABI_VERSION                   4UL
#define VALKEYMODULE_REPLY_HANDLERS_VERSION                         1UL

/* Objects of the server, which modules only have pointers to. */
typedef struct ValkeyModuleCtx ValkeyModuleCtx;
typedef struct ValkeyModuleCommand ValkeyModuleCommand;
typedef struct ValkeyModuleString ValkeyModuleString;
typedef struct ValkeyModuleKey ValkeyModuleKey;
typedef struct ValkeyModuleCallReply ValkeyModuleCallReply;
typedef struct ValkeyModuleIO ValkeyModuleIO;
typedef struct ValkeyModuleType ValkeyModuleType;
typedef struct ValkeyModuleDigest ValkeyModuleDigest;
typedef struct ValkeyModuleBlockedClient ValkeyModuleBlockedClient;
typedef struct ValkeyModuleDict ValkeyModuleDict;
typedef struct ValkeyModuleDictIter ValkeyModuleDictIter;
typedef struct ValkeyModuleCommandFilterCtx ValkeyModuleCommandFilterCtx;
typedef struct ValkeyModuleCommandFilter ValkeyModuleCommandFilter;
typedef struct ValkeyModuleInfoCtx ValkeyModuleInfoCtx;
typedef struct ValkeyModuleServerInfoData ValkeyModuleServerInfoData;
typedef struct ValkeyModuleScanCursor ValkeyModuleScanCursor;
typedef struct ValkeyModuleDefragCtx ValkeyModuleDefragCtx;
typedef struct ValkeyModuleUser ValkeyModuleUser;
typedef struct ValkeyModuleKeyOptCtx ValkeyModuleKeyOptCtx;
typedef struct ValkeyModuleRdbStream ValkeyModuleRdbStream;
typedef void ValkeyModuleScriptingEngineCtx; /* a struct of the module's own */
typedef struct ValkeyModuleScriptingEngineServerRuntimeCtx ValkeyModuleScriptingEngineServerRuntimeCtx;
typedef struct ValkeyModuleCallArgvBlockedHandle ValkeyModuleCallArgvBlockedHandle;
typedef uint64_t ValkeyModuleTimerID;
typedef enum {
    VALKEYMODULE_ARG_TYPE_STRING,
    VALKEYMODULE_ARG_TYPE_INTEGER,
    VALKEYMODULE_ARG_TYPE_DOUBLE,
    VALKEYMODULE_ARG_TYPE_KEY,
    VALKEYMODULE_ARG_TYPE_PATTERN,
    VALKEYMODULE_ARG_TYPE_UNIX_TIME,
    VALKEYMODULE_ARG_TYPE_PURE_TOKEN,
    VALKEYMODULE_ARG_TYPE_ONEOF,
    VALKEYMODULE_ARG_TYPE_BLOCK
} ValkeyModuleCommandArgType;
typedef enum {
    VALKEYMODULE_KSPEC_BS_INVALID = 0,
    VALKEYMODULE_KSPEC_BS_UNKNOWN,
    VALKEYMODULE_KSPEC_BS_INDEX,
    VALKEYMODULE_KSPEC_BS_KEYWORD
} ValkeyModuleKeySpecBeginSearchType;
typedef enum {
    VALKEYMODULE_KSPEC_FK_OMITTED = 0,
    VALKEYMODULE_KSPEC_FK_UNKNOWN,
    VALKEYMODULE_KSPEC_FK_RANGE,
    VALKEYMODULE_KSPEC_FK_KEYNUM
} ValkeyModuleKeySpecFindKeysType;
typedef enum {
    VALKEYMODULE_AUTH_RESULT_GRANTED = 0,
    VALKEYMODULE_AUTH_RESULT_DENIED = 1
} ValkeyModuleAuthenticationResult;
typedef enum {
    VALKEYMODULE_ACL_LOG_AUTH = 0,
    VALKEYMODULE_ACL_LOG_CMD,
    VALKEYMODULE_ACL_LOG_KEY,
    VALKEYMODULE_ACL_LOG_CHANNEL,
    VALKEYMODULE_ACL_LOG_DB
} ValkeyModuleACLLogEntryReason;
typedef enum { VMSE_EVAL, VMSE_FUNCTION, VMSE_ALL } ValkeyModuleScriptingEngineSubsystemType;
typedef enum { VMSE_STATE_EXECUTING, VMSE_STATE_KILLED } ValkeyModuleScriptingEngineExecutionState;
typedef enum {
    VMSE_SCRIPT_FLAG_NO_WRITES = (1ULL << 0),
    VMSE_SCRIPT_FLAG_ALLOW_OOM = (1ULL << 1),
    VMSE_SCRIPT_FLAG_ALLOW_STALE = (1ULL << 2),
    VMSE_SCRIPT_FLAG_NO_CLUSTER = (1ULL << 3),
    VMSE_SCRIPT_FLAG_EVAL_COMPAT_MODE = (1ULL << 4),
    VMSE_SCRIPT_FLAG_ALLOW_CROSS_SLOT = (1ULL << 5)
} ValkeyModuleScriptingEngineScriptFlag;
typedef enum {
    VMSE_DEBUG_NOT_SUPPORTED,
    VMSE_DEBUG_ENABLED,
    VMSE_DEBUG_ENABLE_FAIL
} ValkeyModuleScriptingEngineDebuggerEnableRet;

typedef struct ValkeyModuleStreamID {
    uint64_t ms;
    uint64_t seq;
} ValkeyModuleStreamID;

/* --- Description of commands: SetCommandInfo --- */

typedef struct ValkeyModuleCommandHistoryEntry {
    const char *since;
    const char *changes;
} ValkeyModuleCommandHistoryEntry;
typedef struct ValkeyModuleCommandKeySpec {
    const char *notes;
    uint64_t flags; /* VALKEYMODULE_CMD_KEY_* */
    ValkeyModuleKeySpecBeginSearchType begin_search_type;
    union {
        struct {
            int pos; /* of the first key */
        } index;
        struct {
            const char *keyword; /* keys follow it */
            int startfrom;       /* where the search begins; negative: from the end, backwards */
        } keyword;
    } bs;
    ValkeyModuleKeySpecFindKeysType find_keys_type;
    union {
        struct {
            int lastkey; /* relative to the first; negative: from the end */
            int keystep;
            int limit; /* with lastkey -1: the keys are in the first 1/limit of the arguments */
        } range;
        struct {
            int keynumidx; /* of the number of keys, relative to the begin */
            int firstkey, keystep;
        } keynum;
    } fk;
} ValkeyModuleCommandKeySpec;
typedef struct ValkeyModuleCommandArg {
    const char *name;
    ValkeyModuleCommandArgType type;
    int key_spec_index;
    const char *token;
    const char *summary;
    const char *since;
    int flags;
    const char *deprecated_since;
    struct ValkeyModuleCommandArg *subargs;
    const char *display_text;
} ValkeyModuleCommandArg;
typedef struct ValkeyModuleCommandInfoVersion {
    int version;
    size_t sizeof_historyentry;
    size_t sizeof_keyspec;
    size_t sizeof_arg;
} ValkeyModuleCommandInfoVersion;
static const ValkeyModuleCommandInfoVersion ValkeyModule_CurrentCommandInfoVersion
    __attribute__((unused)) = {.version = 1,
                               .sizeof_historyentry = sizeof(ValkeyModuleCommandHistoryEntry),
                               .sizeof_keyspec = sizeof(ValkeyModuleCommandKeySpec),
                               .sizeof_arg = sizeof(ValkeyModuleCommandArg)};
#define VALKEYMODULE_COMMAND_INFO_VERSION (&ValkeyModule_CurrentCommandInfoVersion)

typedef struct ValkeyModuleCommandInfo {
    const ValkeyModuleCommandInfoVersion *version;
    const char *summary;
    const char *complexity;
    const char *since;
    ValkeyModuleCommandHistoryEntry *history;
    const char *tips;
    int arity;
    ValkeyModuleCommandKeySpec *key_specs;
    ValkeyModuleCommandArg *args;
} ValkeyModuleCommandInfo;

/* --- Server events: what SubscribeToServerEvent takes, and the data of each --- */

typedef struct ValkeyModuleEvent {
    uint64_t id;
    uint64_t dataver;
} ValkeyModuleEvent;
#define VALKEYMODULE_EVENT_(name, id)                                                                                  \
    static const ValkeyModuleEvent ValkeyModuleEvent_##name __attribute__((unused)) = {id, 1}
VALKEYMODULE_EVENT_(ReplicationRoleChanged, VALKEYMODULE_EVENT_REPLICATION_ROLE_CHANGED);
VALKEYMODULE_EVENT_(Persistence, VALKEYMODULE_EVENT_PERSISTENCE);
VALKEYMODULE_EVENT_(FlushDB, VALKEYMODULE_EVENT_FLUSHDB);
VALKEYMODULE_EVENT_(Loading, VALKEYMODULE_EVENT_LOADING);
VALKEYMODULE_EVENT_(ClientChange, VALKEYMODULE_EVENT_CLIENT_CHANGE);
VALKEYMODULE_EVENT_(Shutdown, VALKEYMODULE_EVENT_SHUTDOWN);
VALKEYMODULE_EVENT_(ReplicaChange, VALKEYMODULE_EVENT_REPLICA_CHANGE);
VALKEYMODULE_EVENT_(CronLoop, VALKEYMODULE_EVENT_CRON_LOOP);
VALKEYMODULE_EVENT_(PrimaryLinkChange, VALKEYMODULE_EVENT_PRIMARY_LINK_CHANGE);
VALKEYMODULE_EVENT_(ModuleChange, VALKEYMODULE_EVENT_MODULE_CHANGE);
VALKEYMODULE_EVENT_(LoadingProgress, VALKEYMODULE_EVENT_LOADING_PROGRESS);
VALKEYMODULE_EVENT_(SwapDB, VALKEYMODULE_EVENT_SWAPDB);
VALKEYMODULE_EVENT_(ReplBackup, VALKEYMODULE_EVENT_REPL_BACKUP);
VALKEYMODULE_EVENT_(ReplAsyncLoad, VALKEYMODULE_EVENT_REPL_ASYNC_LOAD);
VALKEYMODULE_EVENT_(ForkChild, VALKEYMODULE_EVENT_FORK_CHILD);
VALKEYMODULE_EVENT_(EventLoop, VALKEYMODULE_EVENT_EVENTLOOP);
VALKEYMODULE_EVENT_(Config, VALKEYMODULE_EVENT_CONFIG);
VALKEYMODULE_EVENT_(Key, VALKEYMODULE_EVENT_KEY);
VALKEYMODULE_EVENT_(AuthenticationAttempt, VALKEYMODULE_EVENT_AUTHENTICATION_ATTEMPT);
VALKEYMODULE_EVENT_(AtomicSlotMigration, VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION);
VALKEYMODULE_EVENT_(CommandResultSuccess, VALKEYMODULE_EVENT_COMMAND_RESULT_SUCCESS);
VALKEYMODULE_EVENT_(CommandResultFailure, VALKEYMODULE_EVENT_COMMAND_RESULT_FAILURE);
VALKEYMODULE_EVENT_(CommandResultRejected, VALKEYMODULE_EVENT_COMMAND_RESULT_REJECTED);
VALKEYMODULE_EVENT_(CommandResultACLRejected, VALKEYMODULE_EVENT_COMMAND_RESULT_ACL_REJECTED);
typedef struct ValkeyModuleClientInfoV1 {
    uint64_t version;
    uint64_t flags;
    uint64_t id;
    char addr[46];
    uint16_t port;
    uint16_t db;
} ValkeyModuleClientInfoV1;
typedef ValkeyModuleClientInfoV1 ValkeyModuleClientInfo;
typedef struct ValkeyModuleReplicationInfoV1 {
    uint64_t version;
    int primary;
    char *primary_host;
    int primary_port;
    char *replid1;
    char *replid2;
    uint64_t repl1_offset;
    uint64_t repl2_offset;
} ValkeyModuleReplicationInfoV1;
typedef ValkeyModuleReplicationInfoV1 ValkeyModuleReplicationInfo;
typedef struct ValkeyModuleFlushInfoV1 {
    uint64_t version;
    int32_t sync;
    int32_t dbnum;
} ValkeyModuleFlushInfoV1;
typedef ValkeyModuleFlushInfoV1 ValkeyModuleFlushInfo;
typedef struct ValkeyModuleModuleChangeV1 {
    uint64_t version;
    const char *module_name;
    int32_t module_version;
} ValkeyModuleModuleChangeV1;
typedef ValkeyModuleModuleChangeV1 ValkeyModuleModuleChange;
typedef struct ValkeyModuleConfigChangeV1 {
    uint64_t version;
    uint32_t num_changes;
    const char **config_names;
} ValkeyModuleConfigChangeV1;
typedef ValkeyModuleConfigChangeV1 ValkeyModuleConfigChange;
typedef struct ValkeyModuleCronLoopV1 {
    uint64_t version;
    int32_t hz;
} ValkeyModuleCronLoopV1;
typedef ValkeyModuleCronLoopV1 ValkeyModuleCronLoop;
typedef struct ValkeyModuleLoadingProgressV1 {
    uint64_t version;
    int32_t hz;
    int32_t progress;
} ValkeyModuleLoadingProgressV1;
typedef ValkeyModuleLoadingProgressV1 ValkeyModuleLoadingProgress;
typedef struct ValkeyModuleSwapDbInfoV1 {
    uint64_t version;
    int32_t dbnum_first;
    int32_t dbnum_second;
} ValkeyModuleSwapDbInfoV1;
typedef ValkeyModuleSwapDbInfoV1 ValkeyModuleSwapDbInfo;
typedef struct ValkeyModuleKeyInfoV1 {
    uint64_t version;
    ValkeyModuleKey *key;
} ValkeyModuleKeyInfoV1;
typedef ValkeyModuleKeyInfoV1 ValkeyModuleKeyInfo;
typedef struct ValkeyModuleAuthenticationInfoV1 {
    uint64_t version;
    uint64_t client_id;
    const char *username;
    const char *module_name;
    ValkeyModuleAuthenticationResult result;
} ValkeyModuleAuthenticationInfoV1;
typedef ValkeyModuleAuthenticationInfoV1 ValkeyModuleAuthenticationInfo;
typedef struct ValkeyModuleSlotRange {
    int start;
    int end;
} ValkeyModuleSlotRange;
typedef struct ValkeyModuleAtomicSlotMigrationInfoV1 {
    uint64_t version;
    char job_name[VALKEYMODULE_NODE_ID_LEN + 1];
    ValkeyModuleSlotRange *slot_ranges;
    uint32_t num_slot_ranges;
} ValkeyModuleAtomicSlotMigrationInfoV1;
typedef ValkeyModuleAtomicSlotMigrationInfoV1 ValkeyModuleAtomicSlotMigrationInfo;
typedef struct ValkeyModuleCommandResultInfoV1 {
    uint64_t version;
    const char *command_name;
    long long duration_us;
    long long dirty;
    uint64_t client_id;
    int is_module_client;
    int argc;
    ValkeyModuleString **argv;
    const char *rejection_context;
} ValkeyModuleCommandResultInfoV1;
typedef ValkeyModuleCommandResultInfoV1 ValkeyModuleCommandResultInfo;
#define VALKEYMODULE_CLIENTINFO_INITIALIZER_V1                                                                         \
    { .version = 1 }
#define VALKEYMODULE_AUTHENTICATIONINFO_INITIALIZER_V1                                                                 \
    { .version = 1 }
#define VALKEYMODULE_ATOMICSLOTMIGRATIONINFO_INITIALIZER_V1                                                            \
    { .version = 1 }

/* --- Functions of modules that the server calls --- */

typedef void (*ValkeyModuleEventLoopFunc)(int fd, void *user_data, int mask);
typedef void (*ValkeyModuleEventLoopOneShotFunc)(void *user_data);
typedef void (*ValkeyModuleEventCallback)(ValkeyModuleCtx *ctx, ValkeyModuleEvent eid, uint64_t subevent, void *data);
typedef void (*ValkeyModuleInfoFunc)(ValkeyModuleInfoCtx *ctx, int for_crash_report);
typedef void (*ValkeyModuleDefragFunc)(ValkeyModuleDefragCtx *ctx);
typedef void (*ValkeyModuleUserChangedFunc)(uint64_t client_id, void *privdata);
typedef int (*ValkeyModuleCmdFunc)(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc);
typedef void (*ValkeyModuleDisconnectFunc)(ValkeyModuleCtx *ctx, ValkeyModuleBlockedClient *bc);
typedef int (*ValkeyModuleNotificationFunc)(ValkeyModuleCtx *ctx, int type, const char *event, ValkeyModuleString *key);
typedef void (*ValkeyModulePostNotificationJobFunc)(ValkeyModuleCtx *ctx, void *pd);
typedef void *(*ValkeyModuleTypeLoadFunc)(ValkeyModuleIO *rdb, int encver);
typedef void (*ValkeyModuleTypeSaveFunc)(ValkeyModuleIO *rdb, void *value);
typedef int (*ValkeyModuleTypeAuxLoadFunc)(ValkeyModuleIO *rdb, int encver, int when);
typedef void (*ValkeyModuleTypeAuxSaveFunc)(ValkeyModuleIO *rdb, int when);
typedef void (*ValkeyModuleTypeRewriteFunc)(ValkeyModuleIO *aof, ValkeyModuleString *key, void *value);
typedef size_t (*ValkeyModuleTypeMemUsageFunc)(const void *value);
typedef size_t (*ValkeyModuleTypeMemUsageFunc2)(ValkeyModuleKeyOptCtx *ctx, const void *value, size_t sample_size);
typedef void (*ValkeyModuleTypeDigestFunc)(ValkeyModuleDigest *digest, void *value);
typedef void (*ValkeyModuleTypeFreeFunc)(void *value);
typedef size_t (*ValkeyModuleTypeFreeEffortFunc)(ValkeyModuleString *key, const void *value);
typedef size_t (*ValkeyModuleTypeFreeEffortFunc2)(ValkeyModuleKeyOptCtx *ctx, const void *value);
typedef void (*ValkeyModuleTypeUnlinkFunc)(ValkeyModuleString *key, const void *value);
typedef void (*ValkeyModuleTypeUnlinkFunc2)(ValkeyModuleKeyOptCtx *ctx, const void *value);
typedef void *(*ValkeyModuleTypeCopyFunc)(ValkeyModuleString *fromkey, ValkeyModuleString *tokey, const void *value);
typedef void *(*ValkeyModuleTypeCopyFunc2)(ValkeyModuleKeyOptCtx *ctx, const void *value);
typedef int (*ValkeyModuleTypeDefragFunc)(ValkeyModuleDefragCtx *ctx, ValkeyModuleString *key, void **value);
typedef void (*ValkeyModuleClusterMessageReceiver)(ValkeyModuleCtx *ctx, const char *sender_id, uint8_t type,
                                                   const unsigned char *payload, uint32_t len);
typedef void (*ValkeyModuleTimerProc)(ValkeyModuleCtx *ctx, void *data);
typedef void (*ValkeyModuleCommandFilterFunc)(ValkeyModuleCommandFilterCtx *filter);
typedef void (*ValkeyModuleForkDoneHandler)(int exitcode, int bysignal, void *user_data);
typedef void (*ValkeyModuleScanCB)(ValkeyModuleCtx *ctx, ValkeyModuleString *keyname, ValkeyModuleKey *key,
                                   void *privdata);
typedef void (*ValkeyModuleScanKeyCB)(ValkeyModuleKey *key, ValkeyModuleString *field, ValkeyModuleString *value,
                                      void *privdata);
typedef ValkeyModuleString *(*ValkeyModuleConfigGetStringFunc)(const char *name, void *privdata);
typedef long long (*ValkeyModuleConfigGetNumericFunc)(const char *name, void *privdata);
typedef unsigned long long (*ValkeyModuleConfigGetUnsignedNumericFunc)(const char *name, void *privdata);
typedef int (*ValkeyModuleConfigGetBoolFunc)(const char *name, void *privdata);
typedef int (*ValkeyModuleConfigGetEnumFunc)(const char *name, void *privdata);
typedef int (*ValkeyModuleConfigSetStringFunc)(const char *name, ValkeyModuleString *val, void *privdata,
                                               ValkeyModuleString **err);
typedef int (*ValkeyModuleConfigSetNumericFunc)(const char *name, long long val, void *privdata,
                                                ValkeyModuleString **err);
typedef int (*ValkeyModuleConfigSetUnsignedNumericFunc)(const char *name, unsigned long long val, void *privdata,
                                                        ValkeyModuleString **err);
typedef int (*ValkeyModuleConfigSetBoolFunc)(const char *name, int val, void *privdata, ValkeyModuleString **err);
typedef int (*ValkeyModuleConfigSetEnumFunc)(const char *name, int val, void *privdata, ValkeyModuleString **err);
typedef int (*ValkeyModuleConfigApplyFunc)(ValkeyModuleCtx *ctx, void *privdata, ValkeyModuleString **err);
typedef void (*ValkeyModuleOnUnblocked)(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply, void *private_data);
typedef int (*ValkeyModuleAuthCallback)(ValkeyModuleCtx *ctx, ValkeyModuleString *username,
                                        ValkeyModuleString *password, ValkeyModuleString **err);

typedef struct ValkeyModuleTypeMethods {
    uint64_t version;
    ValkeyModuleTypeLoadFunc rdb_load;
    ValkeyModuleTypeSaveFunc rdb_save;
    ValkeyModuleTypeRewriteFunc aof_rewrite;
    ValkeyModuleTypeMemUsageFunc mem_usage;
    ValkeyModuleTypeDigestFunc digest;
    ValkeyModuleTypeFreeFunc free;
    ValkeyModuleTypeAuxLoadFunc aux_load;
    ValkeyModuleTypeAuxSaveFunc aux_save;
    int aux_save_triggers;
    ValkeyModuleTypeFreeEffortFunc free_effort;
    ValkeyModuleTypeUnlinkFunc unlink;
    ValkeyModuleTypeCopyFunc copy;
    ValkeyModuleTypeDefragFunc defrag;
    ValkeyModuleTypeMemUsageFunc2 mem_usage2;
    ValkeyModuleTypeFreeEffortFunc2 free_effort2;
    ValkeyModuleTypeUnlinkFunc2 unlink2;
    ValkeyModuleTypeCopyFunc2 copy2;
    ValkeyModuleTypeAuxSaveFunc aux_save2;
} ValkeyModuleTypeMethods;

/* --- Scripting engines --- */

typedef struct ValkeyModuleScriptingEngineCompiledFunctionV1 {
    uint64_t version;
    ValkeyModuleString *name;
    void *function;
    ValkeyModuleString *desc;
    uint64_t f_flags;
} ValkeyModuleScriptingEngineCompiledFunctionV1;
typedef ValkeyModuleScriptingEngineCompiledFunctionV1 ValkeyModuleScriptingEngineCompiledFunction;
typedef struct ValkeyModuleScriptingEngineMemoryInfoV1 {
    uint64_t version;
    size_t used_memory;
    size_t engine_memory_overhead;
} ValkeyModuleScriptingEngineMemoryInfoV1;
typedef ValkeyModuleScriptingEngineMemoryInfoV1 ValkeyModuleScriptingEngineMemoryInfo;
typedef struct ValkeyModuleScriptingEngineCallableLazyEnvReset {
    void *context;
    void (*engineLazyEnvResetCallback)(void *context);
} ValkeyModuleScriptingEngineCallableLazyEnvReset;
typedef struct ValkeyModuleScriptingEngineDebuggerCommandParam {
    const char *name;
    int optional;
    int variadic;
} ValkeyModuleScriptingEngineDebuggerCommandParam;
typedef int (*ValkeyModuleScriptingEngineDebuggerCommandHandlerFunc)(ValkeyModuleString **argv, size_t argc,
                                                                     void *context);
typedef struct ValkeyModuleScriptingEngineDebuggerCommandV1 {
    uint64_t version;
    const char *name;
    const size_t prefix_len;
    const ValkeyModuleScriptingEngineDebuggerCommandParam *params;
    size_t params_len;
    const char *desc;
    int invisible;
    ValkeyModuleScriptingEngineDebuggerCommandHandlerFunc handler;
    void *context;
} ValkeyModuleScriptingEngineDebuggerCommandV1;
typedef ValkeyModuleScriptingEngineDebuggerCommandV1 ValkeyModuleScriptingEngineDebuggerCommand;
#define VALKEYMODULE_SCRIPTING_ENGINE_DEBUGGER_COMMAND(name_, prefix_, params_, params_len_, desc_, invisible_,        \
                                                       handler_)                                                       \
    {                                                                                                                  \
        .version = VALKEYMODULE_SCRIPTING_ENGINE_ABI_DEBUGGER_COMMAND_VERSION, .name = name_, .prefix_len = prefix_,   \
        .params = params_, .params_len = params_len_, .desc = desc_, .invisible = invisible_, .handler = handler_      \
    }
typedef ValkeyModuleScriptingEngineCompiledFunction **(*ValkeyModuleScriptingEngineCompileCodeFunc)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCtx *engine_ctx,
    ValkeyModuleScriptingEngineSubsystemType type, const char *code, size_t code_len, size_t timeout,
    size_t *out_num_compiled_functions, ValkeyModuleString **err);
typedef ValkeyModuleScriptingEngineCompiledFunctionV1 **(*ValkeyModuleScriptingEngineCompileCodeFuncV1)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCtx *engine_ctx,
    ValkeyModuleScriptingEngineSubsystemType type, const char *code, size_t timeout, size_t *out_num_compiled_functions,
    ValkeyModuleString **err);
typedef void (*ValkeyModuleScriptingEngineFreeFunctionFunc)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCtx *engine_ctx,
    ValkeyModuleScriptingEngineSubsystemType type, ValkeyModuleScriptingEngineCompiledFunction *compiled_function);
typedef void (*ValkeyModuleScriptingEngineCallFunctionFunc)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCtx *engine_ctx,
    ValkeyModuleScriptingEngineServerRuntimeCtx *server_ctx,
    ValkeyModuleScriptingEngineCompiledFunction *compiled_function, ValkeyModuleScriptingEngineSubsystemType type,
    ValkeyModuleString **keys, size_t nkeys, ValkeyModuleString **args, size_t nargs);
typedef size_t (*ValkeyModuleScriptingEngineGetFunctionMemoryOverheadFunc)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCompiledFunction *compiled_function);
typedef ValkeyModuleScriptingEngineCallableLazyEnvReset *(*ValkeyModuleScriptingEngineResetEvalFuncV2)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCtx *engine_ctx, int async);
typedef ValkeyModuleScriptingEngineCallableLazyEnvReset *(*ValkeyModuleScriptingEngineResetEnvFunc)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCtx *engine_ctx,
    ValkeyModuleScriptingEngineSubsystemType type, int async);
typedef ValkeyModuleScriptingEngineMemoryInfo (*ValkeyModuleScriptingEngineGetMemoryInfoFunc)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCtx *engine_ctx,
    ValkeyModuleScriptingEngineSubsystemType type);
typedef ValkeyModuleScriptingEngineDebuggerEnableRet (*ValkeyModuleScriptingEngineDebuggerEnableFunc)(
    ValkeyModuleCtx *module_ctx, ValkeyModuleScriptingEngineCtx *engine_ctx,
    ValkeyModuleScriptingEngineSubsystemType type, const ValkeyModuleScriptingEngineDebuggerCommand **commands,
    size_t *commands_length);
typedef void (*ValkeyModuleScriptingEngineDebuggerDisableFunc)(ValkeyModuleCtx *module_ctx,
                                                               ValkeyModuleScriptingEngineCtx *engine_ctx,
                                                               ValkeyModuleScriptingEngineSubsystemType type);
typedef void (*ValkeyModuleScriptingEngineDebuggerStartFunc)(ValkeyModuleCtx *module_ctx,
                                                             ValkeyModuleScriptingEngineCtx *engine_ctx,
                                                             ValkeyModuleScriptingEngineSubsystemType type,
                                                             ValkeyModuleString *source);
typedef void (*ValkeyModuleScriptingEngineDebuggerEndFunc)(ValkeyModuleCtx *module_ctx,
                                                           ValkeyModuleScriptingEngineCtx *engine_ctx,
                                                           ValkeyModuleScriptingEngineSubsystemType type);
typedef struct ValkeyModuleScriptingEngineMethodsV3 {
    uint64_t version;
    union {
        ValkeyModuleScriptingEngineCompileCodeFuncV1 compile_code_v1;
        ValkeyModuleScriptingEngineCompileCodeFunc compile_code;
    };
    ValkeyModuleScriptingEngineFreeFunctionFunc free_function;
    ValkeyModuleScriptingEngineCallFunctionFunc call_function;
    ValkeyModuleScriptingEngineGetFunctionMemoryOverheadFunc get_function_memory_overhead;
    union {
        ValkeyModuleScriptingEngineResetEvalFuncV2 reset_eval_env_v2;
        ValkeyModuleScriptingEngineResetEnvFunc reset_env;
    };
    ValkeyModuleScriptingEngineGetMemoryInfoFunc get_memory_info;
} ValkeyModuleScriptingEngineMethodsV3;
typedef struct ValkeyModuleScriptingEngineMethodsV4 {
    uint64_t version;
    union {
        ValkeyModuleScriptingEngineCompileCodeFuncV1 compile_code_v1;
        ValkeyModuleScriptingEngineCompileCodeFunc compile_code;
    };
    ValkeyModuleScriptingEngineFreeFunctionFunc free_function;
    ValkeyModuleScriptingEngineCallFunctionFunc call_function;
    ValkeyModuleScriptingEngineGetFunctionMemoryOverheadFunc get_function_memory_overhead;
    union {
        ValkeyModuleScriptingEngineResetEvalFuncV2 reset_eval_env_v2;
        ValkeyModuleScriptingEngineResetEnvFunc reset_env;
    };
    ValkeyModuleScriptingEngineGetMemoryInfoFunc get_memory_info;
    ValkeyModuleScriptingEngineDebuggerEnableFunc debugger_enable;
    ValkeyModuleScriptingEngineDebuggerDisableFunc debugger_disable;
    ValkeyModuleScriptingEngineDebuggerStartFunc debugger_start;
    ValkeyModuleScriptingEngineDebuggerEndFunc debugger_end;
} ValkeyModuleScriptingEngineMethodsV4;
typedef ValkeyModuleScriptingEngineMethodsV4 ValkeyModuleScriptingEngineMethods;
typedef struct ValkeyModuleReplyHandlersV1 {
    uint64_t version;
    void (*null)(void *ctx);
    void (*nullBulkString)(void *ctx);
    void (*nullArray)(void *ctx);
    void (*bulkString)(void *ctx, const char *str, size_t len);
    void (*simpleString)(void *ctx, const char *str, size_t len);
    void (*verbatimString)(void *ctx, const char *str, size_t len, const char *fmt);
    void (*error)(void *ctx, const char *msg, size_t len);
    void (*integer)(void *ctx, long long val);
    void (*doubleVal)(void *ctx, double val);
    void (*bigNumber)(void *ctx, const char *str, size_t len);
    void (*boolVal)(void *ctx, int val);
    void (*attributeStart)(void *ctx, size_t len);
    void (*attributeEnd)(void *ctx);
    void (*arrayStart)(void *ctx, size_t len);
    void (*arrayEnd)(void *ctx);
    void (*mapStart)(void *ctx, size_t len);
    void (*mapEnd)(void *ctx);
    void (*setStart)(void *ctx, size_t len);
    void (*setEnd)(void *ctx);
    void (*replyParsingError)(void *ctx);
    void (*onBlocked)(void *ctx, ValkeyModuleCtx *module_ctx, ValkeyModuleCallArgvBlockedHandle *handle);
    int (*onRespAvailable)(void *ctx, ValkeyModuleCtx *module_ctx, const char *proto, size_t proto_len);
} ValkeyModuleReplyHandlersV1;
typedef ValkeyModuleReplyHandlersV1 ValkeyModuleReplyHandlers;

/* --- The functions of the server: result, name without its prefix, arguments. Several lists, since tools take long for
 * a single macro of this size. --- */

/* clang-format off */
#define VALKEYMODULE_FUNCTIONS_1_(function) \
    function(void *, Alloc, (size_t bytes)) \
    function(void *, TryAlloc, (size_t bytes)) \
    function(void *, Realloc, (void *ptr, size_t bytes)) \
    function(void *, TryRealloc, (void *ptr, size_t bytes)) \
    function(void, Free, (void *ptr)) \
    function(void *, Calloc, (size_t nmemb, size_t size)) \
    function(void *, TryCalloc, (size_t nmemb, size_t size)) \
    function(char *, Strdup, (const char *str)) \
    function(int, GetApi, (const char *, void *)) \
    function(int, CreateCommand, (\
             ValkeyModuleCtx *ctx, const char *name, ValkeyModuleCmdFunc cmdfunc, const char *strflags, int \
             firstkey, int lastkey, int keystep)) \
    function(ValkeyModuleCommand *, GetCommand, (ValkeyModuleCtx *ctx, const char *name)) \
    function(int, CreateSubcommand, (\
             ValkeyModuleCommand *parent, const char *name, ValkeyModuleCmdFunc cmdfunc, const char *strflags, \
             int firstkey, int lastkey, int keystep)) \
    function(int, SetCommandInfo, (ValkeyModuleCommand *command, const ValkeyModuleCommandInfo *info)) \
    function(int, SetCommandACLCategories, (ValkeyModuleCommand *command, const char *ctgrsflags)) \
    function(int, AddACLCategory, (ValkeyModuleCtx *ctx, const char *name)) \
    function(void, SetModuleAttribs, (ValkeyModuleCtx *ctx, const char *name, int ver, int apiver))
#define VALKEYMODULE_FUNCTIONS_2_(function) \
    function(int, IsModuleNameBusy, (const char *name)) \
    function(int, WrongArity, (ValkeyModuleCtx *ctx)) \
    function(int, UpdateRuntimeArgs, (ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc)) \
    function(int, ReplyWithLongLong, (ValkeyModuleCtx *ctx, long long ll)) \
    function(int, GetSelectedDb, (ValkeyModuleCtx *ctx)) \
    function(int, SelectDb, (ValkeyModuleCtx *ctx, int newid)) \
    function(int, KeyExists, (ValkeyModuleCtx *ctx, ValkeyModuleString *keyname)) \
    function(ValkeyModuleKey *, OpenKey, (ValkeyModuleCtx *ctx, ValkeyModuleString *keyname, int mode)) \
    function(int, GetOpenKeyModesAll, (void)) \
    function(void, CloseKey, (ValkeyModuleKey *kp)) \
    function(int, KeyType, (ValkeyModuleKey *kp)) \
    function(size_t, ValueLength, (ValkeyModuleKey *kp)) \
    function(int, ListPush, (ValkeyModuleKey *kp, int where, ValkeyModuleString *ele)) \
    function(ValkeyModuleString *, ListPop, (ValkeyModuleKey *key, int where)) \
    function(ValkeyModuleString *, ListGet, (ValkeyModuleKey *key, long index)) \
    function(int, ListSet, (ValkeyModuleKey *key, long index, ValkeyModuleString *value))
#define VALKEYMODULE_FUNCTIONS_3_(function) \
    function(int, ListInsert, (ValkeyModuleKey *key, long index, ValkeyModuleString *value)) \
    function(int, ListDelete, (ValkeyModuleKey *key, long index)) \
    function(ValkeyModuleCallReply *, Call, (ValkeyModuleCtx *ctx, const char *cmdname, const char *fmt, ...)) \
    function(const char *, CallReplyProto, (ValkeyModuleCallReply *reply, size_t *len)) \
    function(void, FreeCallReply, (ValkeyModuleCallReply *reply)) \
    function(int, CallReplyType, (ValkeyModuleCallReply *reply)) \
    function(long long, CallReplyInteger, (ValkeyModuleCallReply *reply)) \
    function(double, CallReplyDouble, (ValkeyModuleCallReply *reply)) \
    function(int, CallReplyBool, (ValkeyModuleCallReply *reply)) \
    function(const char *, CallReplyBigNumber, (ValkeyModuleCallReply *reply, size_t *len)) \
    function(const char *, CallReplyVerbatim, (ValkeyModuleCallReply *reply, size_t *len, const char **format)) \
    function(ValkeyModuleCallReply *, CallReplySetElement, (ValkeyModuleCallReply *reply, size_t idx)) \
    function(int, CallReplyMapElement, (\
             ValkeyModuleCallReply *reply, size_t idx, ValkeyModuleCallReply **key, ValkeyModuleCallReply **val)) \
    function(int, CallReplyAttributeElement, (\
             ValkeyModuleCallReply *reply, size_t idx, ValkeyModuleCallReply **key, ValkeyModuleCallReply **val)) \
    function(void, CallReplyPromiseSetUnblockHandler, (\
             ValkeyModuleCallReply *reply, ValkeyModuleOnUnblocked on_unblock, void *private_data)) \
    function(int, CallReplyPromiseAbort, (ValkeyModuleCallReply *reply, void **private_data))
#define VALKEYMODULE_FUNCTIONS_4_(function) \
    function(ValkeyModuleCallReply *, CallReplyAttribute, (ValkeyModuleCallReply *reply)) \
    function(size_t, CallReplyLength, (ValkeyModuleCallReply *reply)) \
    function(ValkeyModuleCallReply *, CallReplyArrayElement, (ValkeyModuleCallReply *reply, size_t idx)) \
    function(ValkeyModuleString *, CreateString, (ValkeyModuleCtx *ctx, const char *ptr, size_t len)) \
    function(ValkeyModuleString *, CreateStringFromLongLong, (ValkeyModuleCtx *ctx, long long ll)) \
    function(ValkeyModuleString *, CreateStringFromULongLong, (ValkeyModuleCtx *ctx, unsigned long long ull)) \
    function(ValkeyModuleString *, CreateStringFromDouble, (ValkeyModuleCtx *ctx, double d)) \
    function(ValkeyModuleString *, CreateStringFromLongDouble, (\
             ValkeyModuleCtx *ctx, long double ld, int humanfriendly)) \
    function(ValkeyModuleString *, CreateStringFromString, (ValkeyModuleCtx *ctx, const ValkeyModuleString *str)) \
    function(ValkeyModuleString *, CreateStringFromStreamID, (ValkeyModuleCtx *ctx, const ValkeyModuleStreamID *id)) \
    function(ValkeyModuleString *, CreateStringPrintf, (ValkeyModuleCtx *ctx, const char *fmt, ...)) \
    function(void, FreeString, (ValkeyModuleCtx *ctx, ValkeyModuleString *str)) \
    function(const char *, StringPtrLen, (const ValkeyModuleString *str, size_t *len)) \
    function(int, ReplyWithError, (ValkeyModuleCtx *ctx, const char *err)) \
    function(int, ReplyWithErrorFormat, (ValkeyModuleCtx *ctx, const char *fmt, ...)) \
    function(int, ReplyWithCustomErrorFormat, (ValkeyModuleCtx *ctx, int update_error_stats, const char *fmt, ...))
#define VALKEYMODULE_FUNCTIONS_5_(function) \
    function(int, ReplyWithSimpleString, (ValkeyModuleCtx *ctx, const char *msg)) \
    function(int, ReplyWithArray, (ValkeyModuleCtx *ctx, long len)) \
    function(int, ReplyWithMap, (ValkeyModuleCtx *ctx, long len)) \
    function(int, ReplyWithSet, (ValkeyModuleCtx *ctx, long len)) \
    function(int, ReplyWithAttribute, (ValkeyModuleCtx *ctx, long len)) \
    function(int, ReplyWithNullArray, (ValkeyModuleCtx *ctx)) \
    function(int, ReplyWithEmptyArray, (ValkeyModuleCtx *ctx)) \
    function(void, ReplySetArrayLength, (ValkeyModuleCtx *ctx, long len)) \
    function(void, ReplySetMapLength, (ValkeyModuleCtx *ctx, long len)) \
    function(void, ReplySetSetLength, (ValkeyModuleCtx *ctx, long len)) \
    function(void, ReplySetAttributeLength, (ValkeyModuleCtx *ctx, long len)) \
    function(void, ReplySetPushLength, (ValkeyModuleCtx *ctx, long len)) \
    function(int, ReplyWithStringBuffer, (ValkeyModuleCtx *ctx, const char *buf, size_t len)) \
    function(int, ReplyWithCString, (ValkeyModuleCtx *ctx, const char *buf)) \
    function(int, ReplyWithString, (ValkeyModuleCtx *ctx, ValkeyModuleString *str)) \
    function(int, ReplyWithEmptyString, (ValkeyModuleCtx *ctx))
#define VALKEYMODULE_FUNCTIONS_6_(function) \
    function(int, ReplyWithVerbatimString, (ValkeyModuleCtx *ctx, const char *buf, size_t len)) \
    function(int, ReplyWithVerbatimStringType, (ValkeyModuleCtx *ctx, const char *buf, size_t len, const char *ext)) \
    function(int, ReplyWithNull, (ValkeyModuleCtx *ctx)) \
    function(int, ReplyWithBool, (ValkeyModuleCtx *ctx, int b)) \
    function(int, ReplyWithLongDouble, (ValkeyModuleCtx *ctx, long double d)) \
    function(int, ReplyWithDouble, (ValkeyModuleCtx *ctx, double d)) \
    function(int, ReplyWithBigNumber, (ValkeyModuleCtx *ctx, const char *bignum, size_t len)) \
    function(int, ReplyWithCallReply, (ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply)) \
    function(int, StringToLongLong, (const ValkeyModuleString *str, long long *ll)) \
    function(int, StringToULongLong, (const ValkeyModuleString *str, unsigned long long *ull)) \
    function(int, StringToDouble, (const ValkeyModuleString *str, double *d)) \
    function(int, StringToLongDouble, (const ValkeyModuleString *str, long double *d)) \
    function(int, StringToStreamID, (const ValkeyModuleString *str, ValkeyModuleStreamID *id)) \
    function(void, AutoMemory, (ValkeyModuleCtx *ctx)) \
    function(int, Replicate, (ValkeyModuleCtx *ctx, const char *cmdname, const char *fmt, ...)) \
    function(int, ReplicateVerbatim, (ValkeyModuleCtx *ctx))
#define VALKEYMODULE_FUNCTIONS_7_(function) \
    function(const char *, CallReplyStringPtr, (ValkeyModuleCallReply *reply, size_t *len)) \
    function(ValkeyModuleString *, CreateStringFromCallReply, (ValkeyModuleCallReply *reply)) \
    function(int, DeleteKey, (ValkeyModuleKey *key)) \
    function(int, UnlinkKey, (ValkeyModuleKey *key)) \
    function(int, StringSet, (ValkeyModuleKey *key, ValkeyModuleString *str)) \
    function(char *, StringDMA, (ValkeyModuleKey *key, size_t *len, int mode)) \
    function(int, StringTruncate, (ValkeyModuleKey *key, size_t newlen)) \
    function(mstime_t, GetExpire, (ValkeyModuleKey *key)) \
    function(int, SetExpire, (ValkeyModuleKey *key, mstime_t expire)) \
    function(mstime_t, GetAbsExpire, (ValkeyModuleKey *key)) \
    function(int, SetAbsExpire, (ValkeyModuleKey *key, mstime_t expire)) \
    function(void, ResetDataset, (int restart_aof, int async)) \
    function(unsigned long long, DbSize, (ValkeyModuleCtx *ctx)) \
    function(ValkeyModuleString *, RandomKey, (ValkeyModuleCtx *ctx)) \
    function(int, ZsetAdd, (ValkeyModuleKey *key, double score, ValkeyModuleString *ele, int *flagsptr)) \
    function(int, ZsetIncrby, (\
             ValkeyModuleKey *key, double score, ValkeyModuleString *ele, int *flagsptr, double *newscore))
#define VALKEYMODULE_FUNCTIONS_8_(function) \
    function(int, ZsetScore, (ValkeyModuleKey *key, ValkeyModuleString *ele, double *score)) \
    function(int, ZsetRem, (ValkeyModuleKey *key, ValkeyModuleString *ele, int *deleted)) \
    function(void, ZsetRangeStop, (ValkeyModuleKey *key)) \
    function(int, ZsetFirstInScoreRange, (ValkeyModuleKey *key, double min, double max, int minex, int maxex)) \
    function(int, ZsetLastInScoreRange, (ValkeyModuleKey *key, double min, double max, int minex, int maxex)) \
    function(int, ZsetFirstInLexRange, (ValkeyModuleKey *key, ValkeyModuleString *min, ValkeyModuleString *max)) \
    function(int, ZsetLastInLexRange, (ValkeyModuleKey *key, ValkeyModuleString *min, ValkeyModuleString *max)) \
    function(ValkeyModuleString *, ZsetRangeCurrentElement, (ValkeyModuleKey *key, double *score)) \
    function(int, ZsetRangeNext, (ValkeyModuleKey *key)) \
    function(int, ZsetRangePrev, (ValkeyModuleKey *key)) \
    function(int, ZsetRangeEndReached, (ValkeyModuleKey *key)) \
    function(int, HashSet, (ValkeyModuleKey *key, int flags, ...)) \
    function(int, HashGet, (ValkeyModuleKey *key, int flags, ...)) \
    function(int, HashSetStringRef, (ValkeyModuleKey *key, ValkeyModuleString *field, const char *buf, size_t len)) \
    function(int, HashHasStringRef, (ValkeyModuleKey *key, ValkeyModuleString *field)) \
    function(int, StreamAdd, (\
             ValkeyModuleKey *key, int flags, ValkeyModuleStreamID *id, ValkeyModuleString **argv, int64_t \
             numfields))
#define VALKEYMODULE_FUNCTIONS_9_(function) \
    function(int, StreamDelete, (ValkeyModuleKey *key, ValkeyModuleStreamID *id)) \
    function(int, StreamIteratorStart, (\
             ValkeyModuleKey *key, int flags, ValkeyModuleStreamID *startid, ValkeyModuleStreamID *endid)) \
    function(int, StreamIteratorStop, (ValkeyModuleKey *key)) \
    function(int, StreamIteratorNextID, (ValkeyModuleKey *key, ValkeyModuleStreamID *id, long *numfields)) \
    function(int, StreamIteratorNextField, (\
             ValkeyModuleKey *key, ValkeyModuleString **field_ptr, ValkeyModuleString **value_ptr)) \
    function(int, StreamIteratorDelete, (ValkeyModuleKey *key)) \
    function(long long, StreamTrimByLength, (ValkeyModuleKey *key, int flags, long long length)) \
    function(long long, StreamTrimByID, (ValkeyModuleKey *key, int flags, ValkeyModuleStreamID *id)) \
    function(int, IsKeysPositionRequest, (ValkeyModuleCtx *ctx)) \
    function(void, KeyAtPos, (ValkeyModuleCtx *ctx, int pos)) \
    function(void, KeyAtPosWithFlags, (ValkeyModuleCtx *ctx, int pos, int flags)) \
    function(int, IsChannelsPositionRequest, (ValkeyModuleCtx *ctx)) \
    function(void, ChannelAtPosWithFlags, (ValkeyModuleCtx *ctx, int pos, int flags)) \
    function(unsigned long long, GetClientId, (ValkeyModuleCtx *ctx)) \
    function(ValkeyModuleString *, GetClientUserNameById, (ValkeyModuleCtx *ctx, uint64_t id)) \
    function(int, MustObeyClient, (ValkeyModuleCtx *ctx))
#define VALKEYMODULE_FUNCTIONS_10_(function) \
    function(int, GetClientInfoById, (void *ci, uint64_t id)) \
    function(ValkeyModuleString *, GetClientNameById, (ValkeyModuleCtx *ctx, uint64_t id)) \
    function(int, SetClientNameById, (uint64_t id, ValkeyModuleString *name)) \
    function(int, PublishMessage, (ValkeyModuleCtx *ctx, ValkeyModuleString *channel, ValkeyModuleString *message)) \
    function(int, PublishMessageShard, (\
             ValkeyModuleCtx *ctx, ValkeyModuleString *channel, ValkeyModuleString *message)) \
    function(int, GetContextFlags, (ValkeyModuleCtx *ctx)) \
    function(int, AvoidReplicaTraffic, (void)) \
    function(void *, PoolAlloc, (ValkeyModuleCtx *ctx, size_t bytes)) \
    function(ValkeyModuleType *, CreateDataType, (\
             ValkeyModuleCtx *ctx, const char *name, int encver, ValkeyModuleTypeMethods *typemethods)) \
    function(int, ModuleTypeSetValue, (ValkeyModuleKey *key, ValkeyModuleType *mt, void *value)) \
    function(int, ModuleTypeReplaceValue, (\
             ValkeyModuleKey *key, ValkeyModuleType *mt, void *new_value, void **old_value)) \
    function(ValkeyModuleType *, ModuleTypeGetType, (ValkeyModuleKey *key)) \
    function(void *, ModuleTypeGetValue, (ValkeyModuleKey *key)) \
    function(int, IsIOError, (ValkeyModuleIO *io)) \
    function(void, SetModuleOptions, (ValkeyModuleCtx *ctx, int options)) \
    function(int, SignalModifiedKey, (ValkeyModuleCtx *ctx, ValkeyModuleString *keyname))
#define VALKEYMODULE_FUNCTIONS_11_(function) \
    function(void, SaveUnsigned, (ValkeyModuleIO *io, uint64_t value)) \
    function(uint64_t, LoadUnsigned, (ValkeyModuleIO *io)) \
    function(void, SaveSigned, (ValkeyModuleIO *io, int64_t value)) \
    function(int64_t, LoadSigned, (ValkeyModuleIO *io)) \
    function(void, EmitAOF, (ValkeyModuleIO *io, const char *cmdname, const char *fmt, ...)) \
    function(void, SaveString, (ValkeyModuleIO *io, ValkeyModuleString *s)) \
    function(void, SaveStringBuffer, (ValkeyModuleIO *io, const char *str, size_t len)) \
    function(ValkeyModuleString *, LoadString, (ValkeyModuleIO *io)) \
    function(char *, LoadStringBuffer, (ValkeyModuleIO *io, size_t *lenptr)) \
    function(void, SaveDouble, (ValkeyModuleIO *io, double value)) \
    function(double, LoadDouble, (ValkeyModuleIO *io)) \
    function(void, SaveFloat, (ValkeyModuleIO *io, float value)) \
    function(float, LoadFloat, (ValkeyModuleIO *io)) \
    function(void, SaveLongDouble, (ValkeyModuleIO *io, long double value)) \
    function(long double, LoadLongDouble, (ValkeyModuleIO *io)) \
    function(void *, LoadDataTypeFromString, (const ValkeyModuleString *str, const ValkeyModuleType *mt))
#define VALKEYMODULE_FUNCTIONS_12_(function) \
    function(void *, LoadDataTypeFromStringEncver, (\
             const ValkeyModuleString *str, const ValkeyModuleType *mt, int encver)) \
    function(ValkeyModuleString *, SaveDataTypeToString, (\
             ValkeyModuleCtx *ctx, void *data, const ValkeyModuleType *mt)) \
    function(void, Log, (ValkeyModuleCtx *ctx, const char *level, const char *fmt, ...)) \
    function(void, LogIOError, (ValkeyModuleIO *io, const char *levelstr, const char *fmt, ...)) \
    function(void, _Assert, (const char *estr, const char *file, int line)) \
    function(void, LatencyAddSample, (const char *event, mstime_t latency)) \
    function(int, StringAppendBuffer, (ValkeyModuleCtx *ctx, ValkeyModuleString *str, const char *buf, size_t len)) \
    function(void, TrimStringAllocation, (ValkeyModuleString *str)) \
    function(void, RetainString, (ValkeyModuleCtx *ctx, ValkeyModuleString *str)) \
    function(ValkeyModuleString *, HoldString, (ValkeyModuleCtx *ctx, ValkeyModuleString *str)) \
    function(int, StringCompare, (const ValkeyModuleString *a, const ValkeyModuleString *b)) \
    function(ValkeyModuleCtx *, GetContextFromIO, (ValkeyModuleIO *io)) \
    function(const ValkeyModuleString *, GetKeyNameFromIO, (ValkeyModuleIO *io)) \
    function(const ValkeyModuleString *, GetKeyNameFromModuleKey, (ValkeyModuleKey *key)) \
    function(int, GetDbIdFromModuleKey, (ValkeyModuleKey *key)) \
    function(int, GetDbIdFromIO, (ValkeyModuleIO *io))
#define VALKEYMODULE_FUNCTIONS_13_(function) \
    function(int, GetDbIdFromOptCtx, (ValkeyModuleKeyOptCtx *ctx)) \
    function(int, GetToDbIdFromOptCtx, (ValkeyModuleKeyOptCtx *ctx)) \
    function(const ValkeyModuleString *, GetKeyNameFromOptCtx, (ValkeyModuleKeyOptCtx *ctx)) \
    function(const ValkeyModuleString *, GetToKeyNameFromOptCtx, (ValkeyModuleKeyOptCtx *ctx)) \
    function(mstime_t, Milliseconds, (void)) \
    function(uint64_t, MonotonicMicroseconds, (void)) \
    function(ustime_t, Microseconds, (void)) \
    function(ustime_t, CachedMicroseconds, (void)) \
    function(void, DigestAddStringBuffer, (ValkeyModuleDigest *md, const char *ele, size_t len)) \
    function(void, DigestAddLongLong, (ValkeyModuleDigest *md, long long ele)) \
    function(void, DigestEndSequence, (ValkeyModuleDigest *md)) \
    function(int, GetDbIdFromDigest, (ValkeyModuleDigest *dig)) \
    function(const ValkeyModuleString *, GetKeyNameFromDigest, (ValkeyModuleDigest *dig)) \
    function(ValkeyModuleDict *, CreateDict, (ValkeyModuleCtx *ctx)) \
    function(void, FreeDict, (ValkeyModuleCtx *ctx, ValkeyModuleDict *d)) \
    function(uint64_t, DictSize, (ValkeyModuleDict *d))
#define VALKEYMODULE_FUNCTIONS_14_(function) \
    function(int, DictSetC, (ValkeyModuleDict *d, void *key, size_t keylen, void *ptr)) \
    function(int, DictReplaceC, (ValkeyModuleDict *d, void *key, size_t keylen, void *ptr)) \
    function(int, DictSet, (ValkeyModuleDict *d, ValkeyModuleString *key, void *ptr)) \
    function(int, DictReplace, (ValkeyModuleDict *d, ValkeyModuleString *key, void *ptr)) \
    function(void *, DictGetC, (ValkeyModuleDict *d, void *key, size_t keylen, int *nokey)) \
    function(void *, DictGet, (ValkeyModuleDict *d, ValkeyModuleString *key, int *nokey)) \
    function(int, DictDelC, (ValkeyModuleDict *d, void *key, size_t keylen, void *oldval)) \
    function(int, DictDel, (ValkeyModuleDict *d, ValkeyModuleString *key, void *oldval)) \
    function(ValkeyModuleDictIter *, DictIteratorStartC, (\
             ValkeyModuleDict *d, const char *op, void *key, size_t keylen)) \
    function(ValkeyModuleDictIter *, DictIteratorStart, (\
             ValkeyModuleDict *d, const char *op, ValkeyModuleString *key)) \
    function(void, DictIteratorStop, (ValkeyModuleDictIter *di)) \
    function(int, DictIteratorReseekC, (ValkeyModuleDictIter *di, const char *op, void *key, size_t keylen)) \
    function(int, DictIteratorReseek, (ValkeyModuleDictIter *di, const char *op, ValkeyModuleString *key)) \
    function(void *, DictNextC, (ValkeyModuleDictIter *di, size_t *keylen, void **dataptr)) \
    function(void *, DictPrevC, (ValkeyModuleDictIter *di, size_t *keylen, void **dataptr)) \
    function(ValkeyModuleString *, DictNext, (ValkeyModuleCtx *ctx, ValkeyModuleDictIter *di, void **dataptr))
#define VALKEYMODULE_FUNCTIONS_15_(function) \
    function(ValkeyModuleString *, DictPrev, (ValkeyModuleCtx *ctx, ValkeyModuleDictIter *di, void **dataptr)) \
    function(int, DictCompareC, (ValkeyModuleDictIter *di, const char *op, void *key, size_t keylen)) \
    function(int, DictCompare, (ValkeyModuleDictIter *di, const char *op, ValkeyModuleString *key)) \
    function(int, RegisterInfoFunc, (ValkeyModuleCtx *ctx, ValkeyModuleInfoFunc cb)) \
    function(void, RegisterAuthCallback, (ValkeyModuleCtx *ctx, ValkeyModuleAuthCallback cb)) \
    function(int, InfoAddSection, (ValkeyModuleInfoCtx *ctx, const char *name)) \
    function(int, InfoBeginDictField, (ValkeyModuleInfoCtx *ctx, const char *name)) \
    function(int, InfoEndDictField, (ValkeyModuleInfoCtx *ctx)) \
    function(int, InfoAddFieldString, (ValkeyModuleInfoCtx *ctx, const char *field, ValkeyModuleString *value)) \
    function(int, InfoAddFieldCString, (ValkeyModuleInfoCtx *ctx, const char *field, const char *value)) \
    function(int, InfoAddFieldDouble, (ValkeyModuleInfoCtx *ctx, const char *field, double value)) \
    function(int, InfoAddFieldLongLong, (ValkeyModuleInfoCtx *ctx, const char *field, long long value)) \
    function(int, InfoAddFieldULongLong, (ValkeyModuleInfoCtx *ctx, const char *field, unsigned long long value)) \
    function(ValkeyModuleServerInfoData *, GetServerInfo, (ValkeyModuleCtx *ctx, const char *section)) \
    function(void, FreeServerInfo, (ValkeyModuleCtx *ctx, ValkeyModuleServerInfoData *data)) \
    function(ValkeyModuleString *, ServerInfoGetField, (\
             ValkeyModuleCtx *ctx, ValkeyModuleServerInfoData *data, const char *field))
#define VALKEYMODULE_FUNCTIONS_16_(function) \
    function(const char *, ServerInfoGetFieldC, (ValkeyModuleServerInfoData *data, const char *field)) \
    function(long long, ServerInfoGetFieldSigned, (\
             ValkeyModuleServerInfoData *data, const char *field, int *out_err)) \
    function(unsigned long long, ServerInfoGetFieldUnsigned, (\
             ValkeyModuleServerInfoData *data, const char *field, int *out_err)) \
    function(double, ServerInfoGetFieldDouble, (ValkeyModuleServerInfoData *data, const char *field, int *out_err)) \
    function(int, SubscribeToServerEvent, (\
             ValkeyModuleCtx *ctx, ValkeyModuleEvent event, ValkeyModuleEventCallback callback)) \
    function(int, SetLRU, (ValkeyModuleKey *key, mstime_t lru_idle)) \
    function(int, GetLRU, (ValkeyModuleKey *key, mstime_t *lru_idle)) \
    function(int, SetLFU, (ValkeyModuleKey *key, long long lfu_freq)) \
    function(int, GetLFU, (ValkeyModuleKey *key, long long *lfu_freq)) \
    function(ValkeyModuleBlockedClient *, BlockClientOnKeys, (\
             ValkeyModuleCtx *ctx, ValkeyModuleCmdFunc reply_callback, ValkeyModuleCmdFunc timeout_callback, void \
             (*free_privdata)(ValkeyModuleCtx *, void *), long long timeout_ms, ValkeyModuleString **keys, int \
             numkeys, void *privdata)) \
    function(ValkeyModuleBlockedClient *, BlockClientOnKeysWithFlags, (\
             ValkeyModuleCtx *ctx, ValkeyModuleCmdFunc reply_callback, ValkeyModuleCmdFunc timeout_callback, void \
             (*free_privdata)(ValkeyModuleCtx *, void *), long long timeout_ms, ValkeyModuleString **keys, int \
             numkeys, void *privdata, int flags)) \
    function(void, SignalKeyAsReady, (ValkeyModuleCtx *ctx, ValkeyModuleString *key)) \
    function(ValkeyModuleString *, GetBlockedClientReadyKey, (ValkeyModuleCtx *ctx)) \
    function(ValkeyModuleScanCursor *, ScanCursorCreate, (void)) \
    function(void, ScanCursorRestart, (ValkeyModuleScanCursor *cursor)) \
    function(void, ScanCursorDestroy, (ValkeyModuleScanCursor *cursor))
#define VALKEYMODULE_FUNCTIONS_17_(function) \
    function(int, Scan, (\
             ValkeyModuleCtx *ctx, ValkeyModuleScanCursor *cursor, ValkeyModuleScanCB fn, void *privdata)) \
    function(int, ScanKey, (\
             ValkeyModuleKey *key, ValkeyModuleScanCursor *cursor, ValkeyModuleScanKeyCB fn, void *privdata)) \
    function(int, GetContextFlagsAll, (void)) \
    function(int, GetModuleOptionsAll, (void)) \
    function(int, GetKeyspaceNotificationFlagsAll, (void)) \
    function(int, IsSubEventSupported, (ValkeyModuleEvent event, uint64_t subevent)) \
    function(int, GetServerVersion, (void)) \
    function(int, GetTypeMethodVersion, (void)) \
    function(void, Yield, (ValkeyModuleCtx *ctx, int flags, const char *busy_reply)) \
    function(ValkeyModuleBlockedClient *, BlockClient, (\
             ValkeyModuleCtx *ctx, ValkeyModuleCmdFunc reply_callback, ValkeyModuleCmdFunc timeout_callback, void \
             (*free_privdata)(ValkeyModuleCtx *, void *), long long timeout_ms)) \
    function(void *, BlockClientGetPrivateData, (ValkeyModuleBlockedClient *blocked_client)) \
    function(void, BlockClientSetPrivateData, (ValkeyModuleBlockedClient *blocked_client, void *private_data)) \
    function(ValkeyModuleBlockedClient *, BlockClientOnAuth, (\
             ValkeyModuleCtx *ctx, ValkeyModuleAuthCallback reply_callback, void (*free_privdata)(ValkeyModuleCtx \
             *, void *))) \
    function(int, UnblockClient, (ValkeyModuleBlockedClient *bc, void *privdata)) \
    function(int, IsBlockedReplyRequest, (ValkeyModuleCtx *ctx)) \
    function(int, IsBlockedTimeoutRequest, (ValkeyModuleCtx *ctx))
#define VALKEYMODULE_FUNCTIONS_18_(function) \
    function(void *, GetBlockedClientPrivateData, (ValkeyModuleCtx *ctx)) \
    function(ValkeyModuleBlockedClient *, GetBlockedClientHandle, (ValkeyModuleCtx *ctx)) \
    function(int, AbortBlock, (ValkeyModuleBlockedClient *bc)) \
    function(int, BlockedClientMeasureTimeStart, (ValkeyModuleBlockedClient *bc)) \
    function(int, BlockedClientMeasureTimeEnd, (ValkeyModuleBlockedClient *bc)) \
    function(ValkeyModuleCtx *, GetThreadSafeContext, (ValkeyModuleBlockedClient *bc)) \
    function(ValkeyModuleCtx *, GetDetachedThreadSafeContext, (ValkeyModuleCtx *ctx)) \
    function(void, FreeThreadSafeContext, (ValkeyModuleCtx *ctx)) \
    function(void, ThreadSafeContextLock, (ValkeyModuleCtx *ctx)) \
    function(int, ThreadSafeContextTryLock, (ValkeyModuleCtx *ctx)) \
    function(void, ThreadSafeContextUnlock, (ValkeyModuleCtx *ctx)) \
    function(int, SubscribeToKeyspaceEvents, (ValkeyModuleCtx *ctx, int types, ValkeyModuleNotificationFunc cb)) \
    function(int, AddPostNotificationJob, (\
             ValkeyModuleCtx *ctx, ValkeyModulePostNotificationJobFunc callback, void *pd, void (*free_pd)(void \
             *))) \
    function(int, NotifyKeyspaceEvent, (ValkeyModuleCtx *ctx, int type, const char *event, ValkeyModuleString *key)) \
    function(int, GetNotifyKeyspaceEvents, (void)) \
    function(int, BlockedClientDisconnected, (ValkeyModuleCtx *ctx))
#define VALKEYMODULE_FUNCTIONS_19_(function) \
    function(void, RegisterClusterMessageReceiver, (\
             ValkeyModuleCtx *ctx, uint8_t type, ValkeyModuleClusterMessageReceiver callback)) \
    function(int, SendClusterMessage, (\
             ValkeyModuleCtx *ctx, const char *target_id, uint8_t type, const char *msg, uint32_t len)) \
    function(int, GetClusterNodeInfo, (\
             ValkeyModuleCtx *ctx, const char *id, char *ip, char *primary_id, int *port, int *flags)) \
    function(int, GetClusterNodeInfoForClient, (\
             ValkeyModuleCtx *ctx, uint64_t client_id, const char *node_id, char *ip, char *primary_id, int \
             *port, int *flags)) \
    function(char **, GetClusterNodesList, (ValkeyModuleCtx *ctx, size_t *numnodes)) \
    function(void, FreeClusterNodesList, (char **ids)) \
    function(ValkeyModuleTimerID, CreateTimer, (\
             ValkeyModuleCtx *ctx, mstime_t period, ValkeyModuleTimerProc callback, void *data)) \
    function(int, StopTimer, (ValkeyModuleCtx *ctx, ValkeyModuleTimerID id, void **data)) \
    function(int, GetTimerInfo, (ValkeyModuleCtx *ctx, ValkeyModuleTimerID id, uint64_t *remaining, void **data)) \
    function(const char *, GetMyClusterID, (void)) \
    function(size_t, GetClusterSize, (void)) \
    function(void, GetRandomBytes, (unsigned char *dst, size_t len)) \
    function(void, GetRandomHexChars, (char *dst, size_t len)) \
    function(void, SetDisconnectCallback, (ValkeyModuleBlockedClient *bc, ValkeyModuleDisconnectFunc callback)) \
    function(void, SetClusterFlags, (ValkeyModuleCtx *ctx, uint64_t flags)) \
    function(unsigned int, ClusterKeySlotC, (const char *key, size_t keylen))
#define VALKEYMODULE_FUNCTIONS_20_(function) \
    function(unsigned int, ClusterKeySlot, (ValkeyModuleString *key)) \
    function(const char *, ClusterCanonicalKeyNameInSlot, (unsigned int slot)) \
    function(int, ExportSharedAPI, (ValkeyModuleCtx *ctx, const char *apiname, void *func)) \
    function(void *, GetSharedAPI, (ValkeyModuleCtx *ctx, const char *apiname)) \
    function(ValkeyModuleCommandFilter *, RegisterCommandFilter, (\
             ValkeyModuleCtx *ctx, ValkeyModuleCommandFilterFunc cb, int flags)) \
    function(int, UnregisterCommandFilter, (ValkeyModuleCtx *ctx, ValkeyModuleCommandFilter *filter)) \
    function(int, CommandFilterArgsCount, (ValkeyModuleCommandFilterCtx *fctx)) \
    function(ValkeyModuleString *, CommandFilterArgGet, (ValkeyModuleCommandFilterCtx *fctx, int pos)) \
    function(int, CommandFilterArgInsert, (ValkeyModuleCommandFilterCtx *fctx, int pos, ValkeyModuleString *arg)) \
    function(int, CommandFilterArgReplace, (ValkeyModuleCommandFilterCtx *fctx, int pos, ValkeyModuleString *arg)) \
    function(int, CommandFilterArgDelete, (ValkeyModuleCommandFilterCtx *fctx, int pos)) \
    function(unsigned long long, CommandFilterGetClientId, (ValkeyModuleCommandFilterCtx *fctx)) \
    function(int, Fork, (ValkeyModuleForkDoneHandler cb, void *user_data)) \
    function(void, SendChildHeartbeat, (double progress)) \
    function(int, ExitFromChild, (int retcode)) \
    function(int, KillForkChild, (int child_pid))
#define VALKEYMODULE_FUNCTIONS_21_(function) \
    function(float, GetUsedMemoryRatio, (void)) \
    function(size_t, MallocSize, (void *ptr)) \
    function(size_t, MallocUsableSize, (void *ptr)) \
    function(size_t, MallocSizeString, (ValkeyModuleString *str)) \
    function(size_t, MallocSizeDict, (ValkeyModuleDict *dict)) \
    function(ValkeyModuleUser *, CreateModuleUser, (const char *name)) \
    function(void, FreeModuleUser, (ValkeyModuleUser *user)) \
    function(void, SetContextUser, (ValkeyModuleCtx *ctx, const ValkeyModuleUser *user)) \
    function(int, SetModuleUserACL, (ValkeyModuleUser *user, const char *acl)) \
    function(int, SetModuleUserACLString, (\
             ValkeyModuleCtx *ctx, ValkeyModuleUser *user, const char *acl, ValkeyModuleString **error)) \
    function(ValkeyModuleString *, GetModuleUserACLString, (ValkeyModuleUser *user)) \
    function(ValkeyModuleString *, GetCurrentUserName, (ValkeyModuleCtx *ctx)) \
    function(ValkeyModuleUser *, GetModuleUserFromUserName, (ValkeyModuleString *name)) \
    function(int, ACLCheckCommandPermissions, (ValkeyModuleUser *user, ValkeyModuleString **argv, int argc)) \
    function(int, ACLCheckKeyPermissions, (ValkeyModuleUser *user, ValkeyModuleString *key, int flags)) \
    function(int, ACLCheckChannelPermissions, (ValkeyModuleUser *user, ValkeyModuleString *ch, int literal))
#define VALKEYMODULE_FUNCTIONS_22_(function) \
    function(int, ACLCheckPermissions, (\
             ValkeyModuleUser *user, ValkeyModuleString **argv, int argc, int dbid, ValkeyModuleACLLogEntryReason \
             *denial_reason)) \
    function(void, ACLAddLogEntry, (\
             ValkeyModuleCtx *ctx, ValkeyModuleUser *user, ValkeyModuleString *object, \
             ValkeyModuleACLLogEntryReason reason)) \
    function(void, ACLAddLogEntryByUserName, (\
             ValkeyModuleCtx *ctx, ValkeyModuleString *user, ValkeyModuleString *object, \
             ValkeyModuleACLLogEntryReason reason)) \
    function(int, AuthenticateClientWithACLUser, (\
             ValkeyModuleCtx *ctx, const char *name, size_t len, ValkeyModuleUserChangedFunc callback, void \
             *privdata, uint64_t *client_id)) \
    function(int, AuthenticateClientWithUser, (\
             ValkeyModuleCtx *ctx, ValkeyModuleUser *user, ValkeyModuleUserChangedFunc callback, void *privdata, \
             uint64_t *client_id)) \
    function(int, DeauthenticateAndCloseClient, (ValkeyModuleCtx *ctx, uint64_t client_id)) \
    function(int, RedactClientCommandArgument, (ValkeyModuleCtx *ctx, int pos)) \
    function(ValkeyModuleString *, GetClientCertificate, (ValkeyModuleCtx *ctx, uint64_t id)) \
    function(int *, GetCommandKeys, (ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, int *num_keys)) \
    function(int *, GetCommandKeysWithFlags, (\
             ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, int *num_keys, int **out_flags)) \
    function(const char *, GetCurrentCommandName, (ValkeyModuleCtx *ctx)) \
    function(int, RegisterDefragFunc, (ValkeyModuleCtx *ctx, ValkeyModuleDefragFunc func)) \
    function(void *, DefragAlloc, (ValkeyModuleDefragCtx *ctx, void *ptr)) \
    function(ValkeyModuleString *, DefragValkeyModuleString, (ValkeyModuleDefragCtx *ctx, ValkeyModuleString *str)) \
    function(int, DefragShouldStop, (ValkeyModuleDefragCtx *ctx)) \
    function(int, DefragCursorSet, (ValkeyModuleDefragCtx *ctx, unsigned long cursor))
#define VALKEYMODULE_FUNCTIONS_23_(function) \
    function(int, DefragCursorGet, (ValkeyModuleDefragCtx *ctx, unsigned long *cursor)) \
    function(int, GetDbIdFromDefragCtx, (ValkeyModuleDefragCtx *ctx)) \
    function(const ValkeyModuleString *, GetKeyNameFromDefragCtx, (ValkeyModuleDefragCtx *ctx)) \
    function(int, EventLoopAdd, (int fd, int mask, ValkeyModuleEventLoopFunc func, void *user_data)) \
    function(int, EventLoopDel, (int fd, int mask)) \
    function(int, EventLoopAddOneShot, (ValkeyModuleEventLoopOneShotFunc func, void *user_data)) \
    function(int, RegisterBoolConfig, (\
             ValkeyModuleCtx *ctx, const char *name, int default_val, unsigned int flags, \
             ValkeyModuleConfigGetBoolFunc getfn, ValkeyModuleConfigSetBoolFunc setfn, \
             ValkeyModuleConfigApplyFunc applyfn, void *privdata)) \
    function(int, RegisterNumericConfig, (\
             ValkeyModuleCtx *ctx, const char *name, long long default_val, unsigned int flags, long long min, \
             long long max, ValkeyModuleConfigGetNumericFunc getfn, ValkeyModuleConfigSetNumericFunc setfn, \
             ValkeyModuleConfigApplyFunc applyfn, void *privdata)) \
    function(int, RegisterUnsignedNumericConfig, (\
             ValkeyModuleCtx *ctx, const char *name, unsigned long long default_val, unsigned int flags, unsigned \
             long long min, unsigned long long max, ValkeyModuleConfigGetUnsignedNumericFunc getfn, \
             ValkeyModuleConfigSetUnsignedNumericFunc setfn, ValkeyModuleConfigApplyFunc applyfn, void *privdata)) \
    function(int, RegisterStringConfig, (\
             ValkeyModuleCtx *ctx, const char *name, const char *default_val, unsigned int flags, \
             ValkeyModuleConfigGetStringFunc getfn, ValkeyModuleConfigSetStringFunc setfn, \
             ValkeyModuleConfigApplyFunc applyfn, void *privdata)) \
    function(int, RegisterEnumConfig, (\
             ValkeyModuleCtx *ctx, const char *name, int default_val, unsigned int flags, const char \
             **enum_values, const int *int_values, int num_enum_vals, ValkeyModuleConfigGetEnumFunc getfn, \
             ValkeyModuleConfigSetEnumFunc setfn, ValkeyModuleConfigApplyFunc applyfn, void *privdata)) \
    function(int, LoadConfigs, (ValkeyModuleCtx *ctx)) \
    function(ValkeyModuleRdbStream *, RdbStreamCreateFromFile, (const char *filename)) \
    function(void, RdbStreamFree, (ValkeyModuleRdbStream *stream)) \
    function(int, RdbLoad, (ValkeyModuleCtx *ctx, ValkeyModuleRdbStream *stream, int flags)) \
    function(int, RdbSave, (ValkeyModuleCtx *ctx, ValkeyModuleRdbStream *stream, int flags))
#define VALKEYMODULE_FUNCTIONS_24_(function) \
    function(int, RegisterScriptingEngine, (\
             ValkeyModuleCtx *module_ctx, const char *engine_name, ValkeyModuleScriptingEngineCtx *engine_ctx, \
             ValkeyModuleScriptingEngineMethods *engine_methods)) \
    function(int, UnregisterScriptingEngine, (ValkeyModuleCtx *module_ctx, const char *engine_name)) \
    function(ValkeyModuleScriptingEngineExecutionState, GetFunctionExecutionState, (\
             ValkeyModuleScriptingEngineServerRuntimeCtx *server_ctx)) \
    function(void, ScriptingEngineDebuggerLog, (ValkeyModuleString *msg, int truncate)) \
    function(void, ScriptingEngineDebuggerLogRespReplyStr, (const char *reply)) \
    function(void, ScriptingEngineDebuggerLogRespReply, (ValkeyModuleCallReply *reply)) \
    function(void, ScriptingEngineDebuggerFlushLogs, (void)) \
    function(void, ScriptingEngineDebuggerProcessCommands, (int *client_disconnected, ValkeyModuleString **err)) \
    function(int, ACLCheckKeyPrefixPermissions, (\
             ValkeyModuleUser *user, const char *key, size_t len, unsigned int flags))
#define VALKEYMODULE_FUNCTIONS(function) \
    VALKEYMODULE_FUNCTIONS_1_(function) \
    VALKEYMODULE_FUNCTIONS_2_(function) \
    VALKEYMODULE_FUNCTIONS_3_(function) \
    VALKEYMODULE_FUNCTIONS_4_(function) \
    VALKEYMODULE_FUNCTIONS_5_(function) \
    VALKEYMODULE_FUNCTIONS_6_(function) \
    VALKEYMODULE_FUNCTIONS_7_(function) \
    VALKEYMODULE_FUNCTIONS_8_(function) \
    VALKEYMODULE_FUNCTIONS_9_(function) \
    VALKEYMODULE_FUNCTIONS_10_(function) \
    VALKEYMODULE_FUNCTIONS_11_(function) \
    VALKEYMODULE_FUNCTIONS_12_(function) \
    VALKEYMODULE_FUNCTIONS_13_(function) \
    VALKEYMODULE_FUNCTIONS_14_(function) \
    VALKEYMODULE_FUNCTIONS_15_(function) \
    VALKEYMODULE_FUNCTIONS_16_(function) \
    VALKEYMODULE_FUNCTIONS_17_(function) \
    VALKEYMODULE_FUNCTIONS_18_(function) \
    VALKEYMODULE_FUNCTIONS_19_(function) \
    VALKEYMODULE_FUNCTIONS_20_(function) \
    VALKEYMODULE_FUNCTIONS_21_(function) \
    VALKEYMODULE_FUNCTIONS_22_(function) \
    VALKEYMODULE_FUNCTIONS_23_(function) \
    VALKEYMODULE_FUNCTIONS_24_(function)
/* clang-format on */

#ifndef VALKEYMODULE_CORE
#ifndef VALKEYMODULE_API
#ifdef __cplusplus
#define VALKEYMODULE_API __attribute__((weak))
#else
#define VALKEYMODULE_API __attribute__((common)) /* one variable for all files of the module */
#endif
#endif
#define VALKEYMODULE_VARIABLE_(result, name, arguments) VALKEYMODULE_API result(*ValkeyModule_##name) arguments;
VALKEYMODULE_FUNCTIONS(VALKEYMODULE_VARIABLE_)

#ifdef __cplusplus
extern "C" {
#endif
int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc);
int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx);
#ifdef __cplusplus
}
#endif

/* Introduces the module to the server. VALKEYMODULE_ERR: the name is taken. */
__attribute__((unused)) static int ValkeyModule_Init(ValkeyModuleCtx *ctx, const char *name, int ver, int apiver) {
    int (*get_api)(const char *, void *);
    memcpy(&get_api, (void *)ctx, sizeof get_api); /* the first member of a context */
    if (!get_api) return VALKEYMODULE_ERR;
#define VALKEYMODULE_ASK_(result, function, arguments)                                                                 \
    get_api("ValkeyModule_" #function, (void *)&ValkeyModule_##function);
    VALKEYMODULE_FUNCTIONS(VALKEYMODULE_ASK_)
#undef VALKEYMODULE_ASK_
    if (ValkeyModule_IsModuleNameBusy && ValkeyModule_IsModuleNameBusy(name)) return VALKEYMODULE_ERR;
    ValkeyModule_SetModuleAttribs(ctx, name, ver, apiver);
    return VALKEYMODULE_OK;
}

#define ValkeyModule_Assert(condition)                                                                                 \
    ((condition) ? (void)0 : (ValkeyModule__Assert(#condition, __FILE__, __LINE__), abort()))
#define ValkeyModule_IsAOFClient(id)    ((id) == UINT64_MAX)
#define VALKEYMODULE_NOT_USED(variable) ((void)(variable))
/* The server has the function; an older one may not. */
#define RMAPI_FUNC_SUPPORTED(function) ((function) != NULL)
#endif
#endif
