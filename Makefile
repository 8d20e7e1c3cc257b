# make                     builds src/valkey-server, -benchmark, -cli, -check-rdb, -check-aof, -rdma-proxy, and the
#                          client library build/lib/libvalkeyrdma
# make demo                installs what is missing, builds, and shows PING/SET/GET over TCP and RDMA side by side;
#                          charts: build/demo.html
# make check               after `make` it takes less than a minute: style, unit tests, one suite of each kind
# make test                at most 10 minutes on two cores: builds, and runs the tests that this project's own programs
#                          are enough for; ends with "N passed, N failed".
#                          TEST_PARTS="unit rdma": only these of source unit scripts softrdma integration tools rdma
#                          rdma-suites slots tls crash interop; TEST_REPORTS=DIR: JUnit files there
# make test-all            what CI runs: also every suite over RDMA, killed servers, genuine servers and clients (it
#                          builds a genuine Valkey, once)
# make test-rxe            builds, and runs the tests of the RDMA transport on the kernel's soft-RoCE (in an emulated
#                          machine without root)
# make fuzz FUZZ_SECONDS=20  fuzzes the readers of what peers send, each target for that long (clang)
# make install PREFIX=…    programs, man pages, completion, service (utils/packaging/install --help); make uninstall
# make clean   make distclean   make help
#
# Options: BUILD_RDMA=yes|no  BUILD_TLS=yes|no  USE_SYSTEMD=yes|no  MALLOC=jemalloc|libc
#          SANITIZER=address|undefined|thread (or address,undefined)
#          OPTIMIZATION=-O3   WERROR=yes  V=1  PREFIX=/usr/local  DEBUG_FLAGS=-g
# Everything that is built lies in build/; src/ has links to the programs. Each set of options has an object directory
# of its own there, so that changing one rebuilds just what it must.

PREFIX ?= /usr/local
MALLOC ?= jemalloc
OPTIMIZATION ?= -O3
DEBUG_FLAGS ?= -g
WERROR ?= no
PKG_CONFIG ?= pkg-config
# The programs that come with the compiler, also with one for another machine.
of_compiler = $(shell $(CC) -print-prog-name=$(1))
comma := ,

ifeq ($(filter $(MALLOC),jemalloc libc),)
$(error MALLOC=$(MALLOC) is not known; use jemalloc or libc)
endif
# A sanitizer brings its own allocator.
ifneq ($(SANITIZER),)
override MALLOC := libc
endif

found = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes)
# Goals that install packages first, or build nothing, must work where nothing is installed yet.
goals_without_cli := src/valkey-server src/valkey-benchmark src/valkey-check-rdb src/valkey-check-aof
goals_without_build := uninstall clean distclean help install-deps check-includes check-style demo test test-all fuzz
ifneq ($(filter-out $(goals_without_build),$(or $(MAKECMDGOALS),all)),)
  ifeq ($(BUILD_RDMA),)
    ifeq ($(call found,libibverbs librdmacm),yes)
      BUILD_RDMA := yes
    else
      BUILD_RDMA := no
      $(info rdma-core was not found: building without RDMA. `make install-deps` installs it.)
    endif
  endif
  ifeq ($(BUILD_RDMA),yes)
    ifneq ($(call found,libibverbs librdmacm),yes)
      $(error BUILD_RDMA=yes needs libibverbs and librdmacm (rdma-core); `make install-deps` installs them, \
        BUILD_RDMA=no builds without)
    endif
  else ifneq ($(BUILD_RDMA),no)
    $(error BUILD_RDMA=$(BUILD_RDMA) is not known; use yes or no)
  endif
  ifeq ($(BUILD_TLS),)
    BUILD_TLS := $(or $(call found,openssl),no)
    ifeq ($(BUILD_TLS),no)
      $(info OpenSSL was not found: building without TLS. `make install-deps` installs it.)
    endif
  endif
  ifeq ($(BUILD_TLS),yes)
    ifneq ($(call found,openssl),yes)
      $(error BUILD_TLS=yes needs OpenSSL; `make install-deps` installs it, BUILD_TLS=no builds without)
    endif
  else ifneq ($(BUILD_TLS),no)
    $(error BUILD_TLS=$(BUILD_TLS) is not known; use yes or no)
  endif
  ifeq ($(MALLOC),jemalloc)
    ifneq ($(call found,jemalloc),yes)
      $(error MALLOC=jemalloc needs jemalloc; `make install-deps` installs it, MALLOC=libc builds without)
    endif
  endif
  ifeq ($(USE_SYSTEMD),)
    USE_SYSTEMD := $(or $(call found,libsystemd),no)
  else ifeq ($(USE_SYSTEMD),yes)
    ifneq ($(call found,libsystemd),yes)
      $(error USE_SYSTEMD=yes needs libsystemd; `make install-deps` installs it, USE_SYSTEMD=no builds without)
    endif
  else ifneq ($(USE_SYSTEMD),no)
    $(error USE_SYSTEMD=$(USE_SYSTEMD) is not known; use yes or no)
  endif
  ifneq ($(filter-out $(goals_without_cli),$(or $(MAKECMDGOALS),all)),)
    ifneq ($(call found,libedit),yes)
      $(error valkey-cli needs libedit; `make install-deps` installs it, `make $(goals_without_cli)` builds the others)
    endif
  endif
  ifneq ($(call found,liblzf),yes)
    $(error liblzf was not found; `make install-deps` installs what is missing)
  endif
  ifneq ($(call found,lua5.1 lua5.1-bitop),yes)
    $(error Lua 5.1 and its bitop library were not found; `make install-deps` installs them \
        (Debian: liblua5.1-0-dev, lua-bitop-dev))
  endif
endif

include deps/packages.mk

VARIANT := rdma-$(BUILD_RDMA)$(if $(filter no,$(BUILD_TLS)),_tls-no)$(if $(filter no,$(USE_SYSTEMD)),_systemd-no)
VARIANT := $(VARIANT)_$(MALLOC)$(if $(SANITIZER),_$(subst $(comma),-,$(SANITIZER)))
VARIANT := $(VARIANT)$(OPTIMIZATION)$(if $(filter yes,$(WERROR)),_werror)
B := build/$(subst $(eval) ,,$(VARIANT))

WARNINGS := -Wall -Wextra -Wno-unused-parameter -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wshadow
ifeq ($(WERROR),yes)
WARNINGS += -Werror
endif
flags_of_caller := $(CFLAGS)
override CFLAGS += -std=c11 -D_GNU_SOURCE -pthread $(OPTIMIZATION) $(DEBUG_FLAGS) -fno-omit-frame-pointer \
    -fno-strict-aliasing $(WARNINGS)
override CPPFLAGS += -Isrc -I$(B) $(CFLAGS_LZF) $(CFLAGS_LUA)
override LDFLAGS += -pthread -rdynamic
LIBS := $(LIBS_LIB)
ifneq ($(SANITIZER),)
override CFLAGS += -fsanitize=$(SANITIZER) -fno-sanitize-recover=undefined
override LDFLAGS += -fsanitize=$(SANITIZER)
# An empty slice may be at NULL, and NULL + 0 is what it says; clang's check of pointer arithmetic disagrees.
override CFLAGS += $(if $(findstring fuzzer,$(SANITIZER)),-fno-sanitize=pointer-overflow)
endif
ifeq ($(MALLOC),jemalloc)
override CPPFLAGS += -DUSE_JEMALLOC
LIBS += $(LIBS_JEMALLOC)
endif
ifeq ($(BUILD_RDMA),yes)
override CPPFLAGS += -DUSE_RDMA
LIBS += $(LIBS_RDMA)
endif
ifeq ($(BUILD_TLS),yes)
override CPPFLAGS += -DUSE_TLS $(CFLAGS_TLS)
LIBS += $(LIBS_TLS)
endif
ifeq ($(USE_SYSTEMD),yes)
override CPPFLAGS += -DUSE_SYSTEMD
LIBS_SERVER += $(LIBS_SYSTEMD)
endif

Q := $(if $(V),,@)
say = $(if $(V),@:,@printf '  %-5s %s\n' $(1) $(2))

# Layers, lowest first. The tools know lib, resp and net; the server knows all but the tools.
COMMON_LAYERS := lib resp net
SERVER_LAYERS := store snapshot formats server commands blob persistence repl pubsub script acl tracking cluster \
    sentinel module
sources = $(foreach layer,$(1),$(wildcard src/$(layer)/*.c src/$(layer)/*/*.c src/$(layer)/*/*/*.c))
rdma_sources := $(wildcard src/net/rdma/*.c)
tls_sources := $(wildcard src/net/tls*.c src/net/rdma/tls*.c)
left_out := $(if $(filter no,$(BUILD_RDMA)),$(rdma_sources)) $(if $(filter no,$(BUILD_TLS)),$(tls_sources))
COMMON := $(filter-out $(left_out),$(call sources,$(COMMON_LAYERS)))
pulling := $(addprefix src/repl/pull/,primary.c reads.c replica.c) \
    src/cluster/migration/pull_source.c src/cluster/migration/pull_target.c
SERVER := $(filter-out $(if $(filter no,$(BUILD_RDMA)),$(pulling)), \
    $(call sources,$(SERVER_LAYERS)))
TOOL_SHARED := $(filter-out src/tools/cli% src/tools/benchmark% src/tools/check%,$(wildcard src/tools/*.c))
# The tools that check files know the formats, and with them the values.
CHECK_SHARED := $(call sources,store formats) $(filter-out %_main.c,$(wildcard src/tools/check*.c))
CLI := $(wildcard src/tools/cli*.c) $(TOOL_SHARED)
BENCHMARK := $(wildcard src/tools/benchmark*.c) $(TOOL_SHARED)
UNIT := $(wildcard tests/unit/test_*.c)
HELPERS := $(filter-out $(if $(filter no,$(BUILD_RDMA)),tests/programs/rdma-%) \
    $(if $(filter no,$(BUILD_TLS)),tests/programs/tls-%),$(wildcard tests/programs/*.c))
objects = $(patsubst %.c,$(B)/%.o,$(1))

PROGRAMS := $(addprefix src/valkey-,server benchmark cli check-rdb check-aof \
    $(if $(filter yes,$(BUILD_RDMA)),rdma-proxy rdma-run))
SOFTRDMA := $(if $(filter yes,$(BUILD_RDMA)),utils/softrdma/libsoftrdma.so)

# The RDMA client library: the transport and what it needs, as position independent code with libc's allocator. It loads
# rdma-core at run time (src/client/verbs.c). The shared library shows the functions of its header only; the static one
# is a single object in which all others are local.
CLIENT_ABI := 1
CLIENT_LIBRARY := build/lib/libvalkeyrdma.so.$(CLIENT_ABI)
CLIENT_LIBRARIES := $(if $(filter yes,$(BUILD_RDMA)),$(CLIENT_LIBRARY) build/lib/libvalkeyrdma.so \
    build/lib/libvalkeyrdma.a)
CLIENT := $(addprefix src/client/,connection.c context.c placement.c region.c verbs.c)
PIC := $(B)/pic
pic_objects = $(patsubst %.c,$(PIC)/%.o,$(1))
PIC_COMMON := $(filter-out $(tls_sources),$(call sources,lib net))
PIC_FLAGS = $(filter-out -DUSE_JEMALLOC -DUSE_TLS -DUSE_SYSTEMD,$(CPPFLAGS)) -fPIC -fvisibility=hidden \
    -DLIBRARY_THAT_IS_LOADED

# The library that the launcher preloads. It finds it beside itself.
RUN_LIBRARY := $(if $(filter yes,$(BUILD_RDMA)),build/bin/libvalkey-rdma-run.so)
RUN := $(filter-out %_main.c,$(wildcard src/client/run/*.c)) src/client/verbs.c

.PHONY: all check test test-all test-rxe test-programs run-tests unit demo install uninstall clean distclean help \
    install-deps check-includes check-style helpers simulation softrdma FORCE
all: $(PROGRAMS) src/valkey-sentinel $(SOFTRDMA) $(CLIENT_LIBRARIES) $(RUN_LIBRARY)

# The commit that is built, for INFO and --version; zeros where the sources come without their repository.
$(B)/git_commit.c: FORCE
	@mkdir -p $(@D); commit=$$([ -e .git ] && git rev-parse --short=8 HEAD 2>/dev/null || echo 00000000); \
	    dirty=$$([ -e .git ] && ! git diff --quiet HEAD 2>/dev/null && echo 1 || echo 0); \
	    printf '#include "lib/system/version.h"\nconst char git_commit[] = "%s";\nconst int git_dirty = %s;\n' \
	        $$commit $$dirty >$@.tmp; \
	    if cmp -s $@.tmp $@; then rm $@.tmp; else mv $@.tmp $@; fi
$(B)/git_commit.o: $(B)/git_commit.c
	$(Q)$(CC) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

# Programs lie in build/bin, one for all variants: they are linked anew when the variant changes.
build/variant: FORCE
	@mkdir -p build/bin build/lib build/programs/preload build/simulation; echo '$(B)' | cmp -s - $@ || echo '$(B)' > $@

define link
$(call say,LINK,$@)
$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(1)
endef
make_link = @[ "$$(readlink $@)" = $(1) ] || ln -sf $(1) $@
$(PROGRAMS): src/%: build/bin/% FORCE
	$(call make_link,../$<)
# The server knows by its name that it is a Sentinel.
src/valkey-sentinel: src/valkey-server
	$(call make_link,valkey-server)
build/bin/valkey-server: $(call objects,$(COMMON) $(SERVER) src/main.c) $(B)/git_commit.o build/variant
	$(call link,$(LIBS) $(LIBS_SERVER))
build/bin/valkey-cli: $(call objects,$(COMMON) $(CLI)) $(B)/src/tools/cli_commands_txt.o build/variant
	$(call link,$(LIBS) $(LIBS_EDIT))
build/bin/valkey-benchmark: $(call objects,$(COMMON) $(BENCHMARK)) $(B)/src/tools/benchmark_page_html.o build/variant
	$(call link,$(LIBS))

build/bin/valkey-check-rdb build/bin/valkey-check-aof: $(call objects,$(COMMON) $(CHECK_SHARED)) build/variant
	$(call link,$(LIBS))
build/bin/valkey-check-rdb: $(call objects,src/tools/check_rdb_main.c)
build/bin/valkey-check-aof: $(call objects,src/tools/check_aof_main.c)

$(PIC)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS) $(PIC_FLAGS) -MMD -MP -c -o $@ $<
$(PIC)/common.a: $(call pic_objects,$(PIC_COMMON))
	$(Q)rm -f $@ && $(call of_compiler,ar) rcs $@ $^
$(CLIENT_LIBRARY): $(call pic_objects,$(CLIENT)) $(PIC)/common.a src/client/valkeyrdma.map build/variant
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(filter-out -rdynamic,$(LDFLAGS)) -shared -o $@ $(filter %.o %.a,$^) -Wl,-soname,$(@F) \
	    -Wl,--version-script=src/client/valkeyrdma.map -Wl,-z,nodelete -Wl,--gc-sections -Wl,--no-undefined -lm -ldl
build/lib/libvalkeyrdma.so: $(CLIENT_LIBRARY)
	$(Q)ln -sf $(<F) $@
build/lib/libvalkeyrdma.a: $(call pic_objects,$(CLIENT)) $(PIC)/common.a build/variant
	$(call say,AR,$@)
	$(Q)$(call of_compiler,ld) -r -o $(PIC)/valkeyrdma.o $(filter %.o %.a,$^)
	$(Q)$(call of_compiler,objcopy) --localize-hidden $(PIC)/valkeyrdma.o
	$(Q)rm -f $@ && $(call of_compiler,ar) rcs $@ $(PIC)/valkeyrdma.o

PROXY := $(wildcard src/client/proxy/*.c)
build/bin/valkey-rdma-proxy: $(call objects,$(COMMON) $(PROXY)) build/variant
	$(call link,$(LIBS))
build/bin/libvalkey-rdma-run.so: $(call pic_objects,$(RUN)) $(PIC)/common.a src/client/run/run.map build/variant
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(filter-out -rdynamic,$(LDFLAGS)) -shared -o $@ $(filter %.o %.a,$^) -Wl,-soname,$(@F) \
	    -Wl,--version-script=src/client/run/run.map -Wl,-z,nodelete -Wl,--gc-sections -lm -ldl
build/bin/valkey-rdma-run: $(call objects,src/client/run/run_main.c) build/variant
	$(call link)

# A text as a constant: each line becomes a string. The page of valkey-benchmark --report, and the commands that
# valkey-cli knows.
TEXTS := $(B)/src/tools/benchmark_page_html $(B)/src/tools/cli_commands_txt
$(B)/src/tools/benchmark_page_html.c: src/tools/benchmark_page.html
$(B)/src/tools/cli_commands_txt.c: src/tools/cli_commands.txt
$(TEXTS:=.c):
	@mkdir -p $(@D)
	$(Q){ echo 'extern const char $(basename $(@F))[];'; echo 'const char $(basename $(@F))[] ='; \
	    sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $<; echo ';'; } >$@.tmp && mv $@.tmp $@
$(TEXTS:=.o): %.o: %.c
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

# Unit tests: one program a file, each linked with every layer but main and the tools.
UNIT_PROGRAMS := $(patsubst tests/unit/%.c,$(B)/unit/%,$(UNIT))
$(B)/unit/%: $(B)/tests/unit/%.o $(B)/tests/unit/unit.o $(call objects,$(COMMON) $(SERVER))
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS) $(LIBS_SERVER) $(LIBS_CMOCKA)
# The decisions of valkey-cli --cluster.
$(B)/unit/test_cli_cluster_plan: $(B)/src/tools/cli_cluster_plan.o
$(B)/unit/test_sentinel_simulation: $(B)/tests/simulation/sentinel_simulator.o
CLUSTER_SIMULATOR := $(B)/tests/simulation/cluster_simulator.o
QUORUM_SIMULATOR := $(patsubst %,$(B)/tests/simulation/%.o,quorum_clients quorum_simulator)
SYNC_CLUSTER := $(CLUSTER_SIMULATOR) $(QUORUM_SIMULATOR) $(patsubst %,$(B)/tests/simulation/%.o,asynchronous_shards \
    membership_simulator migration_faults migration_files migration_host migration_simulator sync_cluster)
$(patsubst %,$(B)/unit/test_%,cluster_claims cluster_rules cluster_views copied_owners migration_machine): \
    $(CLUSTER_SIMULATOR)
$(B)/unit/test_cluster_sync_simulation: $(SYNC_CLUSTER)
$(B)/unit/test_snapshot $(B)/unit/test_forkless: $(B)/tests/unit/copied_entries.o
$(B)/unit/test_sync_replication: $(QUORUM_SIMULATOR)
$(B)/unit/test_cluster_simulation: $(CLUSTER_SIMULATOR) $(B)/tests/simulation/cluster_faults.o
# Simulations, which are run by hand.
SIMULATIONS := tests/simulation/cluster.c tests/simulation/cluster_sync.c
SIMULATION_PROGRAMS := $(patsubst tests/%.c,build/%,$(SIMULATIONS))
SIMULATED := $(wildcard src/cluster/protocol/*.c) $(wildcard src/cluster/migration/protocol/*.c) \
	$(wildcard src/repl/quorum/protocol/*.c)
build/simulation/cluster: $(CLUSTER_SIMULATOR) $(B)/tests/simulation/cluster_faults.o
build/simulation/cluster_sync: $(SYNC_CLUSTER)
build/simulation/%: $(B)/tests/simulation/%.o $(call objects,$(COMMON) $(SIMULATED)) build/variant
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS)
simulation: $(SIMULATION_PROGRAMS)
HELPER_PROGRAMS := $(patsubst tests/%.c,build/%,$(HELPERS))
build/programs/%: $(B)/tests/programs/%.o $(call objects,$(COMMON)) build/variant
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS)
SOCKET_CASES := $(wildcard tests/programs/sockets/*.c)
build/programs/socket-cases: $(call objects,$(SOCKET_CASES))
# They know nothing of this project but the client library.
build/programs/rdma-client build/programs/rdma-placement: build/programs/rdma-%: $(B)/tests/programs/rdma-%.o \
		build/lib/libvalkeyrdma.a build/variant
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(filter-out -rdynamic,$(LDFLAGS)) -o $@ $(filter %.o %.a,$^) -lm -ldl
# Libraries that a test puts into a program by LD_PRELOAD; without sanitizers, which the program may have.
PRELOADS := $(patsubst tests/%.c,build/%.so,$(wildcard tests/programs/preload/*.c))
build/programs/preload/%.so: tests/programs/preload/%.c build/variant
	$(call say,LINK,$@)
	$(Q)$(CC) -std=c11 -O1 -g $(WARNINGS) -fPIC -shared -pthread -o $@ $< -ldl
# The headers for modules, as `make install` installs them.
MODULE_HEADERS := build/include/valkeymodule.h build/include/redismodule.h
build/include/valkeymodule.h: src/module/valkeymodule.h
	@mkdir -p $(@D)
	$(Q)cp $< $@
build/include/redismodule.h: src/module/valkeymodule.h utils/make-redismodule
	$(call say,WRITE,$@)
	$(Q)utils/make-redismodule $@
# Modules that the tests load, and the example. Like modules of others they know the headers of the interface only.
MODULES := $(patsubst tests/%.c,build/%.so,$(wildcard tests/modules/*.c)) build/modules/limit.so
link_module = $(Q)$(CC) -std=c11 -D_GNU_SOURCE -O1 -g $(WARNINGS) -Isrc -Ibuild/include -fPIC -shared -pthread -o $@ $<
build/modules/%.so: tests/modules/%.c $(MODULE_HEADERS)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(link_module)
build/modules/limit.so: examples/c/limit.c $(MODULE_HEADERS)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(link_module)
helpers: $(HELPER_PROGRAMS) $(PRELOADS) $(MODULES)

# Fuzz targets: one program a file, in a variant of clang's own. That of the RDMA transport brings its own device and
# its own clock.
FUZZ_TARGETS ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ := $(patsubst %,tests/fuzz/fuzz_%.c,$(filter-out $(if $(filter no,$(BUILD_RDMA)),rdma rdma_tls pull_replica \
    pull_primary) $(if $(filter no,$(BUILD_TLS)),tls rdma_tls),$(FUZZ_TARGETS)))
FUZZ_PROGRAMS := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(FUZZ))
FUZZ_SECONDS ?= 20
link_fuzz = $(Q)$(CC) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(1)
$(B)/fuzz/fuzz_rdma: $(B)/tests/fuzz/fuzz_rdma.o $(B)/tests/fuzz/fake_verbs.o $(B)/tests/fuzz/fake_clock.o \
		$(call objects,$(filter-out src/lib/system/clock.c,$(COMMON)))
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(call link_fuzz,$(LIBS_LIB) $(if $(filter yes,$(BUILD_TLS)),$(LIBS_TLS)))
# It replaces the transport below.
$(B)/fuzz/fuzz_rdma_tls: $(B)/tests/fuzz/fuzz_rdma_tls.o \
		$(call objects,$(filter-out src/net/rdma/%,$(COMMON)) $(wildcard src/net/rdma/tls*.c))
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(call link_fuzz,$(LIBS_LIB) $(LIBS_TLS))
# These replace the clock, the event loop and the transport.
$(B)/fuzz/fuzz_pull_replica $(B)/fuzz/fuzz_pull_primary: $(B)/fuzz/fuzz_pull_%: \
		$(B)/tests/fuzz/fuzz_pull_%.o $(B)/tests/fuzz/fake_clock.o $(B)/src/repl/pull/%.o \
		$(call objects,$(addprefix src/repl/pull/,replica.c reads.c seal.c)) \
		$(call objects,$(filter-out src/lib/system/clock.c src/net/%,$(COMMON)))
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(call link_fuzz,$(LIBS_LIB) $(LIBS_TLS))
fuzz_config := $(call objects,$(addprefix src/server/config/,config.c config_file.c config_rewrite.c))
$(B)/fuzz/fuzz_script: $(call objects,src/script/lua_cjson.c src/script/lua_cmsgpack.c src/script/lua_struct.c)
$(B)/fuzz/fuzz_acl: $(call objects,src/acl/rights.c src/server/clients/user.c src/server/script_hooks.c \
		$(addprefix src/server/command/,command.c command_names.c command_syntax.c))
$(B)/fuzz/fuzz_sentinel $(B)/fuzz/fuzz_sentinel_file: $(call objects,$(wildcard src/sentinel/protocol/*.c))
$(B)/fuzz/fuzz_sentinel_file: $(call objects,src/sentinel/sentinel_file.c src/server/durable_file.c) $(fuzz_config)
$(patsubst %,$(B)/fuzz/fuzz_%,cluster_bus cluster_machine nodes_file): \
		$(call objects,$(wildcard src/cluster/protocol/*.c))
$(B)/fuzz/fuzz_text $(B)/fuzz/fuzz_config: $(fuzz_config)
$(patsubst %,$(B)/fuzz/fuzz_%,restore rdb fragment aof): $(call objects,$(wildcard src/store/*.c src/formats/*.c))
$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(call objects,$(COMMON))
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(call link_fuzz,$(LIBS) $(LIBS_LUA))
fuzz-programs: $(FUZZ_PROGRAMS)
	@tests/fuzz/run $(FUZZ_SECONDS) $(FUZZ_PROGRAMS)
fuzz:
	@if echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' | \
	    clang -x c -fsanitize=fuzzer -o /dev/null - 2>/dev/null; then \
	    $(MAKE) --no-print-directory CC=clang SANITIZER=fuzzer-no-link,address,undefined OPTIMIZATION=-O1 fuzz-programs; \
	else echo "fuzz: skipped: clang with libFuzzer was not found; deps/install --test-all installs it"; \
	    echo "0 passed, 0 failed"; [ -z "$$CI_REQUIRE_PEERS" ]; fi
.SECONDARY:

# The device is the ground the tests stand on: built plainly, whatever the server is built with.
utils/softrdma/libsoftrdma.so: FORCE
	$(Q)$(MAKE) --no-print-directory -C utils/softrdma SANITIZER= OPTIMIZATION=-O3 CFLAGS='$(flags_of_caller)'
softrdma: utils/softrdma/libsoftrdma.so

unit: $(UNIT_PROGRAMS) $(SOFTRDMA)
	@tests/unit/run $(UNIT_PROGRAMS)

# Everything the tests need, without running them.
test-programs: all helpers $(UNIT_PROGRAMS)
run-tests: test-programs
	@tests/run $(UNIT_PROGRAMS)
# Packages, the build on every core, and the tests, which start their own processes side by side.
test: PACKAGES := --test
test-all: PACKAGES := --test-all
test-all: export TEST_PARTS ?= all
test test-all:
	@deps/install $(PACKAGES)
	@$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc)) test-programs
	@MAKEFLAGS= $(MAKE) --no-print-directory run-tests $(MAKEOVERRIDES)
check: test-programs
	@utils/check-unused $(B)
	@utils/check-purity $(B)
	@utils/check-walls $(B)
	@TEST_PARTS="source unit" tests/run $(UNIT_PROGRAMS)
	@./runtest --single strings --single transactions --single options --single documents
	@./runtest --suite tools --single cli
	@if [ "$(BUILD_RDMA)" = yes ]; then ./runtest-rdma --device softrdma --single transport; fi
	@[ ! -x "$$GENUINE_VALKEY/valkey-server" ] || tests/crash/cluster 1 --mixed --replicas 1 --seconds 1 --seed 3
# Not part of `make test`: it takes minutes, and packages of 700 MB (deps/install --rxe). Without them it is skipped.
test-rxe: all helpers
	@tests/rxe/run
demo:
	@deps/install
	@$(MAKE) --no-print-directory all
	@utils/demo

# Where files go, and what can be chosen, stands at the head of utils/packaging/install.
install_variables := DESTDIR PREFIX BINDIR LIBDIR INCLUDEDIR DATADIR MANDIR PYTHONDIR SYSCONFDIR LOCALSTATEDIR \
    UNITDIR BASHCOMPDIR ZSHCOMPDIR USE_REDIS_SYMLINKS
run_install = @env $(foreach name,$(install_variables),'$(name)=$($(name))') utils/packaging/install
install: all
	$(run_install)
uninstall:
	$(run_install) --remove

clean:
	rm -rf build src/valkey-* tests/tmp
	@[ ! -f utils/softrdma/Makefile ] || $(MAKE) --no-print-directory -C utils/softrdma clean
distclean: clean
	rm -f tags compile_commands.json

install-deps:
	@deps/install
check-includes:
	@utils/check-includes
check-style:
	@utils/check-style

help:
	@sed -n '/^# make/,/^$$/s/^# \{0,1\}//p' Makefile

-include $(patsubst %.o,%.d,$(call objects,$(COMMON) $(SERVER) src/main.c $(CLI) $(BENCHMARK) $(CHECK_SHARED) \
    $(wildcard src/tools/check*_main.c) $(PROXY) $(UNIT) $(wildcard tests/simulation/*.c) \
    tests/unit/copied_entries.c tests/unit/unit.c $(HELPERS) $(SOCKET_CASES) $(FUZZ) tests/fuzz/fake_verbs.c \
    tests/fuzz/fake_clock.c))
-include $(patsubst %.o,%.d,$(call pic_objects,$(PIC_COMMON) $(CLIENT) $(RUN)) \
    $(call objects,src/client/run/run_main.c))
