/* nameless.c: a module for tests/integration/modules.tcl that does not say its name. */
int ValkeyModule_OnLoad(void *ctx, void **argv, int argc);
int ValkeyModule_OnLoad(void *ctx, void **argv, int argc) {
    (void)ctx;
    (void)argv;
    (void)argc;
    return 0;
}
