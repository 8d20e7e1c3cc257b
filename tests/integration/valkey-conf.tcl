# valkey.conf, the file that comes with the server: it names every option, with the default the server has.

# Lines of options, without the '#' that makes them examples; explanation has a space behind its '#'.
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
        # Users are lines of the file, but no options.
        set written [lmap line [split [file_bytes [srv conf]] \n] \
            {if {[regexp {^[a-z]} $line] && ![string match "user *" $line]} {set line} else continue}]
        lappend written "replicaof host port" ;# a primary has no such line
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

    # What the harness sets itself cannot be compared; save gathers what is set twice.
    set own {bind port save daemonize enable-debug-command enable-protected-configs set-proc-title dir\
        rdma-bind rdma-port}
    set lines [lmap line [shipped_lines] {if {[lindex [split $line] 0] in $own} continue; set line}]
    set plain [r config get *]
    # A genuine server need not know the options of ours.
    if {[server_is_ours]} {start_server [list config $lines tags {config}] {
        test "valkey.conf with every line switched on is the default" -needs {ours 1} {
            set loaded [r config get *]
            set different {}
            foreach {name value} $plain {
                if {$name in {dir port rdma-port rdma-bind}} continue
                if {[dict get $loaded $name] ne $value} {
                    lappend different "$name: '[dict get $loaded $name]', not '$value'"
                }
            }
            assert_equal {} $different
        }
    }}
}
