/* roles.c: see roles.h. */
#include "repl/roles.h"

const struct repl_role_hooks *repl_role_hooks;

void repl_follow(struct slice host, int port, enum repl_follow how) {
    repl_role_hooks->follow(host, port, how);
}

void repl_lead(void) {
    repl_role_hooks->lead();
}

void repl_drop_link(bool again) {
    repl_role_hooks->drop_link(again);
}

void repl_say(int argc, const struct slice *argv) {
    repl_role_hooks->say(argc, argv);
}

void repl_end_waits(void) {
    repl_role_hooks->end_waits();
}
