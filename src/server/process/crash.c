/* crash.c: logs a crash report: the reason, the stack, the registers, the command that was executing. Then the signal
 * takes its usual course (a core file, the exit status that a supervisor expects).
 *
 * Everything here runs in a signal handler of a process whose state is damaged. The handler allocates nothing and takes
 * no lock; it builds text in a static buffer and calls write(). The parts that follow the server's pointers come last:
 * if one of them crashes, the report ends there. The handler runs on its own stack, so that it can report a stack
 * overflow. */
#include "server/process/crash.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/config/settings.h"
#include "server/server.h"
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_SIZE = 128 * 1024, FRAMES_MAX = 100, WORDS_SHOWN = 16, ARGUMENTS_SHOWN = 16, ARGUMENT_SHOWN = 128 };

static volatile sig_atomic_t reporting;
static char line[1024];
static size_t line_len;

/* Building a line without printf */
static void crash_put(const char *text) {
    size_t len = strlen(text);
    if (len > sizeof line - 2 - line_len) len = sizeof line - 2 - line_len;
    memcpy(line + line_len, text, len);
    line_len += len;
}
static void put_number(int64_t value) {
    char text[NUMBER_TEXT_MAX];
    text[format_int64(text, value)] = 0;
    crash_put(text);
}
static void put_hex(uint64_t value, int digits) {
    char text[17];
    for (int i = digits - 1; i >= 0; i--, value >>= 4) text[i] = "0123456789abcdef"[value & 15];
    text[digits] = 0;
    crash_put(text);
}
static void put_bytes(struct slice bytes, size_t max) {
    for (size_t i = 0; i < bytes.len && i < max; i++) {
        char text[2] = {bytes.data[i] >= ' ' && bytes.data[i] <= '~' ? bytes.data[i] : '.', 0};
        crash_put(text);
    }
    if (bytes.len > max) crash_put("...");
}
static void put_line(void) {
    line[line_len++] = '\n';
    line[line_len] = 0;
    log_write_raw(line);
    line_len = 0;
}
static void put_title(const char *title) {
    crash_put("\n------ ");
    crash_put(title);
    crash_put(" ------");
    put_line();
}

static const char *signal_name(int number) {
    switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    case SIGABRT: return "SIGABRT";
    default: return "?";
    }
}

static uint64_t instruction_of(const ucontext_t *context) {
#if defined(__x86_64__)
    return (uint64_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uint64_t)context->uc_mcontext.pc;
#else
    return 0;
#endif
}

static bool report_begun; /* an assertion has failed, which precedes its signal */
static void report_begin(void) {
    if (report_begun) return;
    report_begun = true;
    log_write_raw("\n=== VALKEY BUG REPORT START: Cut & paste starting from here ===\n");
}
static void report_head(int number, const siginfo_t *info, const ucontext_t *context) {
    report_begin();
    log_write_from_handler("The server crashed. The report that follows helps to find the cause.");
    crash_put("Valkey " SERVER_VERSION " crashed by signal: ");
    put_number(number);
    crash_put(" (");
    crash_put(signal_name(number));
    crash_put("), si_code: ");
    put_number(info->si_code);
    put_line();
    if (number != SIGABRT && info->si_code > 0) {
        crash_put("Accessing address: 0x");
        put_hex((uint64_t)(uintptr_t)info->si_addr, 16);
        put_line();
    }
    if (info->si_code == SI_USER) {
        crash_put("Killed by PID: ");
        put_number(info->si_pid);
        crash_put(", UID: ");
        put_number(info->si_uid);
        put_line();
    }
    crash_put("Crashed running the instruction at: 0x");
    put_hex(instruction_of(context), 16);
    put_line();
}

static void report_frame(const void *address) {
    Dl_info info;
    crash_put("0x");
    put_hex((uint64_t)(uintptr_t)address, 16);
    if (dladdr(address, &info) && info.dli_fname) {
        const char *name = strrchr(info.dli_fname, '/');
        crash_put(" ");
        crash_put(name ? name + 1 : info.dli_fname);
        crash_put("(");
        if (info.dli_sname) {
            crash_put(info.dli_sname);
            crash_put("+0x");
            put_hex((uint64_t)((const char *)address - (const char *)info.dli_saddr), 4);
        } else {
            /* A static function: the offset in the file, for addr2line. */
            crash_put("+0x");
            put_hex((uint64_t)((const char *)address - (const char *)info.dli_fbase), 8);
        }
        crash_put(")");
    }
    put_line();
}

static void report_stack(const ucontext_t *context) {
    void *frames[FRAMES_MAX];
    line_len = 0;
    put_title("STACK TRACE");
    crash_put("EIP:");
    put_line();
    report_frame((const void *)(uintptr_t)instruction_of(context));
    crash_put("\nBacktrace:");
    put_line();
    int count = backtrace(frames, FRAMES_MAX);
    for (int i = 0; i < count; i++) report_frame(frames[i]);
    put_title("STACK TRACE DONE");
}

static void report_registers(const ucontext_t *context) {
    put_title("REGISTERS");
#if defined(__x86_64__)
    static const struct {
        const char *name;
        int index;
    } registers[] = {{"RAX", REG_RAX}, {"RBX", REG_RBX}, {"RCX", REG_RCX}, {"RDX", REG_RDX}, {"RDI", REG_RDI},
                     {"RSI", REG_RSI}, {"RBP", REG_RBP}, {"RSP", REG_RSP}, {"R8", REG_R8},   {"R9", REG_R9},
                     {"R10", REG_R10}, {"R11", REG_R11}, {"R12", REG_R12}, {"R13", REG_R13}, {"R14", REG_R14},
                     {"R15", REG_R15}, {"RIP", REG_RIP}, {"EFL", REG_EFL}};
    for (size_t i = 0; i < sizeof registers / sizeof *registers; i++) {
        crash_put(registers[i].name);
        crash_put(":");
        put_hex((uint64_t)context->uc_mcontext.gregs[registers[i].index], 16);
        crash_put(i % 4 == 3 ? "\n" : " ");
    }
    put_line();
    if (server_settings.hide_user_data) {
        crash_put("The stack is left out: hide-user-data-from-log is on.");
        put_line();
        return;
    }
    const uint64_t *stack = (const uint64_t *)(uintptr_t)context->uc_mcontext.gregs[REG_RSP];
    for (int i = WORDS_SHOWN - 1; i >= 0; i--) {
        crash_put("(");
        put_hex((uint64_t)(uintptr_t)(stack + i), 16);
        crash_put(") -> ");
        put_hex(stack[i], 16);
        put_line();
    }
#elif defined(__aarch64__)
    for (int i = 0; i < 31; i++) {
        crash_put("X");
        put_number(i);
        crash_put(":");
        put_hex((uint64_t)context->uc_mcontext.regs[i], 16);
        crash_put(i % 4 == 3 ? "\n" : " ");
    }
    crash_put("SP:");
    put_hex((uint64_t)context->uc_mcontext.sp, 16);
    crash_put(" PC:");
    put_hex((uint64_t)context->uc_mcontext.pc, 16);
    put_line();
#else
    crash_put("not known on this machine");
    put_line();
#endif
}

static void report_field(const char *name, int64_t value) {
    crash_put(name);
    crash_put(":");
    put_number(value);
    put_line();
}

static void report_state(void) {
    put_title("STATE OF THE SERVER");
    report_field("process_id", getpid());
    report_field("uptime_in_seconds", (clock_monotonic_ms() - server.started_ms) / 1000);
    report_field("used_memory", (int64_t)mem_used());
    report_field("maxmemory", (int64_t)server_settings.maxmemory);
    report_field("total_commands_processed", (int64_t)dispatch_commands);
    report_field("connected_clients", (int64_t)clients_count());
    report_field("total_connections_received", (int64_t)client_stats.accepted);
    report_field("changes_since_last_save", (int64_t)server.dirty);
    for (int i = 0; server.keyspace && i < keyspace_databases(server.keyspace); i++) {
        const struct db *db = keyspace_db(server.keyspace, i);
        if (!db_size(db)) continue;
        crash_put("db");
        put_number(i);
        crash_put(":keys=");
        put_number((int64_t)db_size(db));
        crash_put(",expires=");
        put_number((int64_t)db_expires(db));
        put_line();
    }
}

/* An output that writes to the log. */
static char log_bytes[OUTPUT_RESERVE_MAX + 1];
static void log_bytes_write(struct output *out, size_t len) {
    *out->pos = 0;
    if (out->pos != log_bytes) log_write_raw(log_bytes);
    out->pos = log_bytes;
}
static const struct output_ops log_output_ops = {.make_space = log_bytes_write};

static void report_cluster(void) {
    struct output out = {.pos = log_bytes, .end = log_bytes + OUTPUT_RESERVE_MAX, .ops = &log_output_ops};
    if (!cluster_hooks) return;
    put_title("CLUSTER INFO OUTPUT");
    cluster_hooks->write_info(&out);
    log_bytes_write(&out, 0);
    put_title("CLUSTER NODES OUTPUT");
    cluster_hooks->write_nodes(&out);
    log_bytes_write(&out, 0);
}

static void (*write_modules)(struct output *out);
void crash_set_modules(void (*write)(struct output *out)) {
    write_modules = write;
}
static void report_modules(void) {
    struct output out = {.pos = log_bytes, .end = log_bytes + OUTPUT_RESERVE_MAX, .ops = &log_output_ops};
    if (!write_modules) return;
    put_title("MODULES INFO OUTPUT");
    write_modules(&out);
    log_bytes_write(&out, 0);
}

static void report_call(void) {
    const struct call *call = dispatch_running();
    if (!call) return;
    put_title("CURRENT CLIENT INFO");
    crash_put("command: ");
    crash_put(call->command->full_name);
    put_line();
    report_field("arguments", call->argc);
    for (int i = 0; i < call->argc && i < ARGUMENTS_SHOWN; i++) {
        crash_put("argv[");
        put_number(i);
        crash_put("]: ");
        put_number((int64_t)call->argv[i].len);
        crash_put(" bytes");
        if (!server_settings.hide_user_data) {
            crash_put(": '");
            put_bytes(call->argv[i], ARGUMENT_SHOWN);
            crash_put("'");
        }
        put_line();
    }
    if (call->client) {
        log_write_raw(client_crash_text(call->client));
        log_write_raw("\n");
    }
}

static _Noreturn void die(int number) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    kill(getpid(), number);
    _exit(1); /* not reached if the signal ends the process */
}

static const char report_end[] =
    "\n=== VALKEY BUG REPORT END. Make sure to include from START to END. ===\n\n"
    "       Please report the crash, with this text, what was being done, and the version of the "
    "operating system.\n\n";

static void crashed(int number, siginfo_t *info, void *data) {
    const ucontext_t *context = data;
    if (!server_settings.crash_log || reporting == 2) die(number);
    bool again = reporting;
    reporting = again ? 2 : 1;
    line_len = 0;
    if (again)
        log_write_from_handler("Crashed running signal handler. Providing reduced version of recursive crash report.");
    report_head(number, info, context);
    report_stack(context);
    if (again) {
        log_write_raw(report_end);
        die(number);
    }
    report_registers(context);
    report_state();
    report_call();
    report_cluster();
    report_modules(); /* calls functions of modules, and so comes last */
    log_write_raw(report_end);
    if (server_settings.exit_on_panic && number == SIGABRT) _exit(1);
    die(number);
}

/* --- The watchdog --- */

enum { WATCHDOG_MIN_MS = 200 };
static int watchdog_period; /* milliseconds; 0: off */

static void stuck(int number, siginfo_t *info, void *data) {
    int saved_errno = errno;
    if (reporting) return;
    log_write_from_handler(info->si_code == SI_USER ? "\nReceived SIGALRM" : "\n--- WATCHDOG TIMER EXPIRED ---");
    report_stack(data);
    log_write_from_handler("--------\n");
    errno = saved_errno;
}

static void timer_set(int ms) {
    struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

void watchdog_cron(void) {
    if (watchdog_period) timer_set(watchdog_period);
}

/* The period covers two turns of the cron at least. */
static const char *apply_watchdog(void) {
    int least = 2 * 1000 / (server.hz ? server.hz : 10);
    if (least < WATCHDOG_MIN_MS) least = WATCHDOG_MIN_MS;
    if (watchdog_period && watchdog_period < least) watchdog_period = least;
    timer_set(watchdog_period);
    return NULL;
}

const struct config_option watchdog_options[] = {
    {OPTION("watchdog-period", CONFIG_INT, &watchdog_period, "0"), .flags = CONFIG_HIDDEN, .min = 0, .max = INT32_MAX,
     .apply = apply_watchdog},
    {.name = NULL},
};

static void out_of_memory(size_t size) {
    log_warning("Out Of Memory allocating %zu bytes!", size);
    log_warning("Guru Meditation: Server aborting for OUT OF MEMORY. Allocating %zu bytes!", size);
}

static void must_failed(const char *text) {
    if (server_settings.crash_log) report_begin();
    log_warning(reporting ? "=== RECURSIVE ASSERTION FAILED ===" : "=== ASSERTION FAILED ===");
    log_warning("%s", text);
}

void crash_catch_signals(void) {
    void *frame;
    backtrace(&frame, 1); /* loads its library here, not in the handler */
    mem_set_oom_handler(out_of_memory);
    must_set_handler(must_failed);
    struct sigaction alarm = {.sa_sigaction = stuck, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigemptyset(&alarm.sa_mask);
    sigaction(SIGALRM, &alarm, NULL);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return; /* the sanitizer's own report says more */
#endif
    void *memory = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory != MAP_FAILED) {
        stack_t stack = {.ss_sp = memory, .ss_size = STACK_SIZE};
        sigaltstack(&stack, NULL);
    }
    struct sigaction action = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
}
