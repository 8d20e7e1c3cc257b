# How each library is found. README.md beside this file says why each is there.
pkg_libs = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null)
CFLAGS_LZF := $(shell $(PKG_CONFIG) --cflags liblzf 2>/dev/null)
LIBS_LIB := -lm $(or $(call pkg_libs,liblzf),-llzf)
LIBS_JEMALLOC := $(call pkg_libs,jemalloc)
LIBS_RDMA := $(call pkg_libs,librdmacm libibverbs)
LIBS_SYSTEMD := $(call pkg_libs,libsystemd)
LIBS_EDIT := $(call pkg_libs,libedit)
LIBS_CMOCKA := $(call pkg_libs,cmocka)
LIBS_SERVER :=
