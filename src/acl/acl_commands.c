/* acl_commands.c: ACL. SETUSER applies its rules to a copy of the user, which replaces the user if all of them are
 * valid. */
#include "acl/acl.h"
#include "acl/rights.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/command/command.h"
#include "server/command/command_names.h"
#include "server/command/dispatch.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/feature.h"
#include <ctype.h>

enum { NAME_SHOWN = 256, RULE_SHOWN = 1024 };

static int shown(struct slice text, size_t max) {
    return (int)(text.len < max ? text.len : max);
}

static void reply_subcommand_misused(struct call *call) {
    reply_error_format(call->reply, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try ACL HELP.",
                       shown(call->argv[1], 128), call->argv[1].data);
}

/* --- Changing users --- */

static bool name_ok(struct slice name) {
    for (size_t i = 0; i < name.len; i++)
        if (!name.data[i] || isspace((unsigned char)name.data[i])) return false;
    return true;
}

static void setuser_run(struct call *call) {
    struct slice name = call->argv[2];
    for (int i = 2; i < call->argc; i++) call_redact(call, i); /* passwords */
    if (!name_ok(name)) {
        reply_error(call->reply, "ERR Usernames can't contain spaces or null characters");
        return;
    }
    int count, unmatched;
    struct slice *rules = rules_join(call->argc - 3, call->argv + 3, &count, &unmatched);
    if (!rules) {
        struct slice word = call->argv[3 + unmatched];
        reply_error_format(call->reply, "ERR Unmatched parenthesis in acl selector starting at '%.*s'.",
                           shown(word, RULE_SHOWN), word.data);
        return;
    }
    struct user *user = user_find(name), tried = {0};
    if (user)
        user_copy_rights(&tried, user);
    else
        user_reset(&tried);
    const char *reason = NULL;
    for (int i = 0; i < count && !reason; i++) {
        reason = user_apply_rule(&tried, rules[i]);
        if (reason)
            reply_error_format(call->reply, "ERR Error in ACL SETUSER modifier '%.*s': %s", shown(rules[i], RULE_SHOWN),
                               rules[i].data, reason);
    }
    rules_free(rules, count);
    if (!reason) {
        if (!user) user = user_add(name);
        user_copy_rights(user, &tried);
        acl_user_changed(user);
        reply_ok(call->reply);
    }
    user_free_rights(&tried);
    user_clear_passwords(&tried);
    user_close_caller(call->client);
}

static void deluser_run(struct call *call) {
    int64_t removed = 0;
    for (int i = 2; i < call->argc; i++) {
        call_redact(call, i);
        if (!slice_equal(call->argv[i], slice_of(user_default.name))) continue;
        reply_error(call->reply, "ERR The 'default' user cannot be removed");
        return;
    }
    for (int i = 2; i < call->argc; i++) {
        struct user *user = user_find(call->argv[i]);
        if (!user) continue;
        user_free_rights(user);
        user_remove(user);
        removed++;
    }
    acl_user_changed(NULL);
    reply_integer(call->reply, removed);
    user_close_caller(call->client);
}

/* --- Showing users --- */

typedef void selector_part(const struct acl_selector *selector, struct output *out);
static void reply_part(struct reply *reply, const char *name, selector_part *write,
                       const struct acl_selector *selector) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    write(selector, &text.out);
    reply_bulk_text(reply, name);
    reply_bulk(reply, memory_output_slice(&text));
    memory_output_free(&text);
}
static void reply_selector(struct reply *reply, const struct acl_selector *selector) {
    reply_part(reply, "commands", selector_write_commands, selector);
    reply_part(reply, "keys", selector_write_keys, selector);
    reply_part(reply, "channels", selector_write_channels, selector);
    reply_part(reply, "databases", selector_write_databases, selector);
}

static void getuser_run(struct call *call) {
    struct reply *reply = call->reply;
    call_redact(call, 2);
    const struct user *user = user_find(call->argv[2]);
    if (!user) {
        reply_null(reply);
        return;
    }
    bool no_password = user->flags & USER_NO_PASSWORD;
    reply_map(reply, 7);
    reply_bulk_text(reply, "flags");
    reply_set(reply, no_password ? 2 : 1);
    reply_bulk_text(reply, user->flags & USER_ENABLED ? "on" : "off");
    if (no_password) reply_bulk_text(reply, "nopass");
    reply_bulk_text(reply, "passwords");
    reply_array(reply, user->password_count);
    for (unsigned i = 0; i < user->password_count; i++) {
        char text[2 * SHA256_SIZE];
        user_password_hex(user->passwords[i], text);
        reply_bulk(reply, (struct slice){text, sizeof text});
    }
    reply_selector(reply, &user->rights->selectors[0]);
    reply_bulk_text(reply, "selectors");
    reply_array(reply, user->rights->count - 1);
    for (size_t i = 1; i < user->rights->count; i++) {
        reply_map(reply, 4);
        reply_selector(reply, &user->rights->selectors[i]);
    }
}

static void list_run(struct call *call) {
    reply_array(call->reply, users_count());
    for (size_t i = 0; i < users_count(); i++) {
        struct memory_output line = MEMORY_OUTPUT_INIT;
        output_write(&line.out, SLICE("user "));
        output_write(&line.out, slice_of(user_at(i)->name));
        output_write(&line.out, SLICE(" "));
        user_write_rules(user_at(i), &line.out);
        reply_bulk(call->reply, memory_output_slice(&line));
        memory_output_free(&line);
    }
}

static void users_run(struct call *call) {
    reply_array(call->reply, users_count());
    for (size_t i = 0; i < users_count(); i++) reply_bulk_text(call->reply, user_at(i)->name);
}

static void whoami_run(struct call *call) {
    if (call->client->user == &user_superuser)
        reply_null(call->reply);
    else
        reply_bulk_text(call->reply, call->client->user->name);
}

static void dryrun_run(struct call *call) {
    struct reply *reply = call->reply;
    call_redact(call, 2);
    const struct user *user = user_find(call->argv[2]);
    if (!user) {
        reply_error_format(call->reply, "ERR User '%.*s' not found", shown(call->argv[2], NAME_SHOWN),
                           call->argv[2].data);
        return;
    }
    int argc = call->argc - 3, at;
    const struct slice *argv = call->argv + 3;
    const struct command *command = command_lookup(argc, argv, NULL);
    if (!command) {
        reply_error_format(reply, "ERR Command '%.*s' not found", shown(argv[0], 128), argv[0].data);
        return;
    }
    if (!command_arity_ok(command, argc)) {
        reply_error_format(reply, "ERR wrong number of arguments for '%s' command", command->full_name);
        return;
    }
    enum user_denial denial = acl_check(user, db_id(call->db), command, argc, argv, &at);
    if (denial == USER_ALLOWED) {
        reply_ok(reply);
        return;
    }
    struct memory_output text = MEMORY_OUTPUT_INIT;
    struct slice name = slice_of(user->name), object = argv[at];
    if (denial == USER_DENIED_COMMAND) object = slice_of(command->full_name);
    output_write(&text.out, SLICE("User "));
    output_write(&text.out, name);
    output_write(&text.out, denial == USER_DENIED_COMMAND    ? SLICE(" has no permissions to run the '")
                            : denial == USER_DENIED_DATABASE ? SLICE(" has no permissions to access database ")
                                                             : SLICE(" has no permissions to access the '"));
    output_write(&text.out, object);
    output_write(&text.out, denial == USER_DENIED_COMMAND   ? SLICE("' command")
                            : denial == USER_DENIED_KEY     ? SLICE("' key")
                            : denial == USER_DENIED_CHANNEL ? SLICE("' channel")
                                                            : SLICE(""));
    reply_bulk(reply, memory_output_slice(&text));
    memory_output_free(&text);
}

/* --- Files --- */

static const char no_file[] =
    "ERR This instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command "
    "and then issue a CONFIG REWRITE (assuming you have a configuration file set) in order to store users in the "
    "configuration.";

static void load_run(struct call *call) {
    if (!acl_has_file()) {
        reply_error(call->reply, no_file);
        return;
    }
    const char *errors = acl_file_load();
    if (!errors) {
        reply_ok(call->reply);
        user_close_caller(call->client);
        return;
    }
    struct memory_output text = MEMORY_OUTPUT_INIT;
    output_write(&text.out, SLICE("ERR "));
    output_write(&text.out, (struct slice){errors, strlen(errors) + 1});
    reply_error(call->reply, memory_output_slice(&text).data);
    memory_output_free(&text);
}

static void save_run(struct call *call) {
    if (!acl_has_file())
        reply_error(call->reply, no_file);
    else if (acl_file_save() < 0)
        reply_error(call->reply,
                    "ERR There was an error trying to save the ACLs. Please check the server logs for more "
                    "information");
    else
        reply_ok(call->reply);
}

/* --- Categories, passwords, the log --- */

struct category {
    struct reply *reply; /* NULL: count only */
    uint32_t flag;
    size_t count;
};
static void category_add(struct command *command, void *context) {
    struct category *category = context;
    if (!(command->categories & category->flag)) return;
    category->count++;
    if (category->reply) reply_bulk_text(category->reply, command->full_name);
}

static void cat_run(struct call *call) {
    if (call->argc > 3) {
        reply_subcommand_misused(call);
        return;
    }
    if (call->argc == 2) {
        size_t count = 0;
        while (command_category_names[count].name) count++;
        reply_array(call->reply, count);
        for (size_t i = 0; i < count; i++) reply_bulk_text(call->reply, command_category_names[i].name);
        return;
    }
    struct category category = {.flag = command_category_by_name(call->argv[2])};
    if (!category.flag) {
        reply_error_format(call->reply, "ERR Unknown category '%.*s'", shown(call->argv[2], 128), call->argv[2].data);
        return;
    }
    commands_each_all(category_add, &category);
    reply_array(call->reply, category.count);
    category.reply = call->reply;
    commands_each_all(category_add, &category);
}

static void genpass_run(struct call *call) {
    enum { BITS_DEFAULT = 256, BITS_MAX = 4096, BITS_PER_DIGIT = 4 };
    int64_t bits = BITS_DEFAULT;
    if (call->argc > 3) {
        reply_subcommand_misused(call);
        return;
    }
    if (call->argc == 3 && !parse_int64(call->argv[2], &bits)) {
        reply_not_integer(call->reply);
        return;
    }
    if (bits < 1 || bits > BITS_MAX) {
        reply_error(call->reply, "ERR ACL GENPASS argument must be the number of bits for the output password, a "
                                 "positive number up to 4096");
        return;
    }
    char text[BITS_MAX / BITS_PER_DIGIT + 1];
    size_t digits = (size_t)(bits + BITS_PER_DIGIT - 1) / BITS_PER_DIGIT;
    random_hex(text, digits);
    reply_bulk(call->reply, (struct slice){text, digits});
}

static void log_run(struct call *call) {
    if (call->argc > 3)
        reply_subcommand_misused(call);
    else
        acl_log_run(call);
}

#define ASKS        (CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE)
#define ADMINISTERS (ASKS | CMD_ADMIN)
#define PER_USER    .complexity = "O(N) where N is the number of users"

static const char *const on_all_nodes[] = {"request_policy:all_nodes", "response_policy:all_succeeded", NULL};
static const char *const setuser_history[] = {"6.2.0", "Takes patterns of channels.",
                                              "7.0.0", "Takes selectors, and key patterns for reading or writing only.",
                                              "9.1.0", "Takes databases.",
                                              NULL};
static const char *const getuser_history[] = {"6.2.0", "Returns patterns of channels.",
                                              "7.0.0", "Returns selectors, and patterns as rules.",
                                              "9.1.0", "Returns databases.",
                                              NULL};
static const char *const log_history[] = {"7.2.0", "Returns the id of an entry and when it was made and updated.",
                                          NULL};

static const struct command_spec subcommands[] = {
    {COMMAND("cat", cat_run, -2, ASKS, .group = GROUP_SERVER, "6.0.0"),
     .complexity = "O(1), as categories and commands do not change.",
     .summary = "Lists the categories of commands, or the commands of a category.", .syntax = "[category:string]"},
    {COMMAND("deluser", deluser_run, -3, ADMINISTERS, .group = GROUP_SERVER, "6.0.0"),
     .complexity = "O(N) where N is the number of connections",
     .summary = "Removes users and closes their connections.", .syntax = "username:string...", .tips = on_all_nodes},
    {COMMAND("dryrun", dryrun_run, -4, ADMINISTERS, .group = GROUP_SERVER, "7.0.0"), .complexity = "O(1)",
     .summary = "Checks whether a user may run a command, without running it.",
     .syntax = "username:string command:string [arg:string...]"},
    {COMMAND("genpass", genpass_run, -2, ASKS, .group = GROUP_SERVER, "6.0.0"), .complexity = "O(1)",
     .summary = "Generates a random password.", .syntax = "[bits:integer]"},
    {COMMAND("getuser", getuser_run, 3, ADMINISTERS, .group = GROUP_SERVER, "6.0.0"),
     .complexity = "O(N) where N is the number of rules of the user", .summary = "Returns the rules of a user.",
     .syntax = "username:string", .history = getuser_history},
    {HELP_ROW(help_handler, "CAT [<category>]", "    List the categories of commands, or the commands of a category.",
              "DELUSER <username> [<username> ...]", "    Remove users and close their connections.",
              "DRYRUN <username> <command> [<arg> ...]",
              "    Tell whether the user may run a command, without running it.", "GENPASS [<bits>]",
              "    Generate a random password of 256 or <bits> bits, in hexadecimal.", "GETUSER <username>",
              "    Return the rules of a user.", "LIST", "    List the users and their rules, as a file has them.",
              "LOAD", "    Replace the users by those of the ACL file.", "LOG [<count> | RESET]",
              "    List the latest denied commands and failed logins, or forget them.", "SAVE",
              "    Write the users to the ACL file.", "SETUSER <username> <rule> [<rule> ...]",
              "    Create a user, or change one by rules.", "USERS", "    List the names of the users.", "WHOAMI",
              "    Return the user of this connection."),
     .group = GROUP_SERVER, .since = "6.0.0"},
    {COMMAND("list", list_run, 2, ADMINISTERS, .group = GROUP_SERVER, "6.0.0"), PER_USER,
     .summary = "Lists the users and their rules in the format of the ACL file."},
    {COMMAND("load", load_run, 2, ADMINISTERS, .group = GROUP_SERVER, "6.0.0"), PER_USER,
     .summary = "Replaces the users by those of the ACL file."},
    {COMMAND("log", log_run, -2, ADMINISTERS, .group = GROUP_SERVER, "6.0.0"),
     .complexity = "O(N) where N is the number of entries returned",
     .summary = "Lists the latest denied commands and failed logins.", .syntax = "[operation(count:integer|RESET)]",
     .history = log_history},
    {COMMAND("save", save_run, 2, ADMINISTERS, .group = GROUP_SERVER, "6.0.0"), PER_USER,
     .summary = "Writes the users to the ACL file.", .tips = on_all_nodes},
    {COMMAND("setuser", setuser_run, -3, ADMINISTERS, .group = GROUP_SERVER, "6.0.0"),
     .complexity = "O(N) where N is the number of rules", .summary = "Creates a user, or changes one by rules.",
     .syntax = "username:string [rule:string...]", .history = setuser_history, .tips = on_all_nodes},
    {COMMAND("users", users_run, 2, ADMINISTERS, .group = GROUP_SERVER, "6.0.0"), PER_USER,
     .summary = "Lists the users."},
    {COMMAND("whoami", whoami_run, 2, ASKS, .group = GROUP_SERVER, "6.0.0"), .complexity = "O(1)",
     .summary = "Returns the user of the connection."},
    {.name = NULL},
};

static const struct command_spec acl_commands[] = {
    {COMMAND("acl", NULL, -2, 0, .group = GROUP_SERVER, "6.0.0"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about users.", .subcommands = subcommands},
    {.name = NULL},
};

const struct feature acl_feature = {
    .name = "acl",
    .options = OPTIONS(acl_options),
    .directives = DIRECTIVES(acl_directives),
    .commands = COMMANDS(acl_commands),
    .init = acl_init,
};
