# valkey.conf, the file that is shipped with the server: it has every option with its default.

# Lines of options, without the '#' of examples; explanations have a space after the '#'.
proc shipped_lines {} {
    set lines {}
    foreach line [split [file_bytes [file join $::root valkey.conf]] \n] {
        if {[regexp {^#?([a-z][a-z0-9-]*( .*)?)$} $line - option]} {lappend lines $option}
    }
    return $lines
}
proc names_of {lines} {lsort -unique [lmap line $lines {lindex [split $line] 0}]}

start_server {overrides {io-threads -} tags {config}} {
    test "valkey.conf has every option, and no other" -needs {ours 1} {
        r debug config-rewrite-force-all
        # Users are lines of the file, but not options.
        set written [lmap line [split [file_bytes [srv conf]] \n] \
            {if {[regexp {^[a-z]} $line] && ![string match "user *" $line]} {set line} else continue}]
        lappend written "replicaof host port" ;# a primary does not have this line
        set shipped [names_of [shipped_lines]]
        assert_equal {} [lmap name [names_of $written] {if {$name in $shipped} continue; set name}] \
            "missing from valkey.conf"
        assert_equal {} [lmap name $shipped {if {$name in [names_of $written]} continue; set name}] \
            "in valkey.conf only"
    }

    test "every line of valkey.conf is empty, a comment that begins with '# ', or an option" -needs {ours 1} {
        foreach line [split [file_bytes [file join $::root valkey.conf]] \n] {
            assert_regexp {^$|^#$|^# |^#?[a-z][a-z0-9-]* \S} $line
        }
    }

    # Options that the harness sets cannot be compared; `save` accumulates its values.
    set own {bind port save daemonize enable-debug-command enable-protected-configs set-proc-title dir\
        rdma-bind rdma-port}
    if {$::opt(tls)} {lappend own tls-port tls-rdma tls-cert-file tls-key-file tls-ca-cert-file}
    set lines [lmap line [shipped_lines] {if {[lindex [split $line] 0] in $own} continue; set line}]
    set plain [r config get *]
    # A genuine server may not have all options of our server.
    if {[server_is_ours]} {start_server [list config $lines tags {config}] {
        test "valkey.conf with every line switched on is the default" -needs {ours 1} {
            set loaded [r config get *]
            set different {}
            foreach {name value} $plain {
                if {$name in {dir port rdma-port rdma-bind tls-port}} continue
                if {[dict get $loaded $name] ne $value} {
                    lappend different "$name: '[dict get $loaded $name]', not '$value'"
                }
            }
            assert_equal {} $different
        }
    }}
}
