# The documents agree with the server. INFO rdma has its test in tests/rdma/seen.tcl.

start_server {tags {documents}} {
    test "docs/operating.md explains every field of INFO" -needs {ours 1} {
        r set key value
        r config set appendonly yes
        set guide [file_bytes [file join $::root docs operating.md]]
        foreach {- name} [regexp -all -inline {`(\w+)`} $guide] {dict set explained $name 1}
        set missing {}
        foreach line [split [r info everything] \n] {
            if {![regexp {^(\w+)[:|]} $line - name]} continue
            regsub {^(cmdstat|errorstat|latency_percentiles_usec)_.*} $name {\1} name
            regsub {_human$} $name {} name
            regsub {^(db|listener|used_active_time_io_thread_)\d+$} $name {\1N} name
            switch $name cmdstat {set name cmdstat_NAME} errorstat {set name errorstat_PREFIX} \
                latency_percentiles_usec {set name latency_percentiles_usec_NAME}
            if {![dict exists $explained $name]} {lappend missing $name}
        }
        assert_equal {} $missing
    }
}

start_server {tags {documents} no_rdma 1} {
    test "tests/crash/agree knows every option that can be changed" -needs {ours 1} {
        assert_equal {} [exec python3 [file join $::root tests crash agree_options.py] [srv port]]
    }
}

test "docs/configuration.md is what utils/make-docs writes" -needs {ours 1} {
    exec [file join $::root utils make-docs] --check --server [file join $::root src valkey-server]
}

test "the commands that valkey-cli knows are those of the server" -needs {ours 1} {
    exec [file join $::root utils make-cli-commands] --check --server [file join $::root src valkey-server]
}
