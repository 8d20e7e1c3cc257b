# Starts, stops and inspects the server under test.
#
#   start_server {overrides {maxclients 5} tags {slow} config {line line} args {--port 1}} { ... }
#
# starts a server with its own directory and port, runs the body, and stops the server. The innermost server of nested
# blocks is the current one: [r], [srv] and [new_client] use it; levels -1, -2 ... are the servers of the enclosing
# blocks.
#
#   overrides  options put into the configuration file, over the defaults below
#   config     further lines for that file, as they are
#   args       further command line arguments
#   tags       tags of all tests inside
#   keep_dir   a directory to use instead of a new one (to start on old data)
#   no_rdma    1: never over RDMA or TLS
#   wait       0: do not wait until it serves

set ::servers {}          ;# stack of server ids, the innermost last
array set ::server {}     ;# ::server(id,what)
set ::server_next 0
set ::test_clients {}

# srv ?level? what: port, client_port, host, pid, dir, log (path of the log), conf, id ...
proc srv {args} {
    set level 0
    if {[llength $args] > 1} {
        set level [lindex $args 0]
        set args [lrange $args 1 end]
    }
    set id [lindex $::servers end+$level]
    if {$id eq ""} {error "there is no server at level $level"}
    if {[lindex $args 0] eq "id"} {return $id}
    return $::server($id,[lindex $args 0])
}

# The main client of the current server: r ?level? command...
proc r {args} {
    set level 0
    if {[string is integer -strict [lindex $args 0]]} {
        set level [lindex $args 0]
        set args [lrange $args 1 end]
    }
    set id [srv $level id]
    if {[info exists ::server($id,client)] && [info commands $::server($id,client)] ne ""} {
        return [$::server($id,client) {*}$args]
    }
    set c [new_client -level $level]
    # The main client belongs to the server, not to the test that used it first.
    set at [lsearch -exact $::test_clients $c]
    set ::test_clients [lreplace $::test_clients $at $at]
    set ::server($id,client) $c
    if {$::server($id,auth) ne ""} {$c auth $::server($id,auth)}
    return [$c {*}$args]
}
# A new main client (after the connection was used up by a test).
proc reconnect {{level 0}} {
    set id [srv $level id]
    if {[info exists ::server($id,client)]} {
        catch {$::server($id,client) -close}
        unset -nocomplain ::server($id,client)
    }
}

proc server_defaults {port} {
    return [list bind 127.0.0.1 port $port save {} daemonize no enable-debug-command yes \
        enable-protected-configs yes set-proc-title yes]
}

proc server_command {} {
    set cmd {}
    if {$::opt(launcher) ne ""} {lappend cmd {*}$::opt(launcher)}
    if {$::opt(valgrind)} {
        lappend cmd valgrind --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
            --num-callers=30 --error-exitcode=0
    }
    lappend cmd $::opt(server)
    return $cmd
}

# A value in the syntax of a configuration file.
set ::options_of_several {save bind client-output-buffer-limit oom-score-adj-values rename-command replicaof slaveof
    latency-tracking-info-percentiles user loadmodule tls-protocols rdma-bind bind-source-addr}
proc conf_value {name v} {
    if {$v eq ""} {return {""}}
    if {$name ni $::options_of_several && [regexp {[\s"'\\]} $v]} {return "\"[string map {\\ \\\\ \" \\\"} $v]\""}
    return $v
}

# Starts a server and returns its id. The server is not on the stack yet.
proc server_start {options} {
    set o [dict merge {overrides {} config {} args {} keep_dir {} no_rdma 0 wait 1 auth {} env {}} $options]
    set id [incr ::server_next]
    for {set try 0} {1} {incr try} {
        set port [free_port]
        if {[dict exists [dict get $o overrides] port]} {set port [dict get $o overrides port]}
        if {[dict get $o keep_dir] ne ""} {
            set dir [dict get $o keep_dir]
        } else {
            set dir [file join $::unit_dir s$id]
        }
        file mkdir $dir
        set settings [dict create]
        foreach {k v} [server_defaults $port] {dict set settings $k $v}
        dict set settings dir $dir
        set rdma [expr {$::opt(rdma) && ![dict get $o no_rdma]}]
        if {$rdma} {
            dict set settings rdma-bind $::opt(rdma_host)
            # A replica tries RDMA and falls back to TCP at the same address.
            if {$::opt(rdma_host) ne "127.0.0.1"} {dict set settings bind "127.0.0.1 $::opt(rdma_host)"}
            dict set settings rdma-port $port
        }
        set tls [expr {$::opt(tls) && ![dict get $o no_rdma]}]
        if {$tls} {
            set certificates [certificates]
            set tls_port [free_port]
            foreach {k v} {tls-cert-file server.crt tls-key-file server.key tls-ca-cert-file ca.crt} {
                dict set settings $k [file join $certificates $v]
            }
            dict set settings tls-port $tls_port
            # Peers of the transport's suites speak clear text as well: they break the transport's rules, not TLS's.
            if {$rdma} {dict set settings tls-rdma [expr {$::opt(suite) eq "rdma" ? "optional" : "yes"}]}
            set ::server($id,tls_port) $tls_port
        }
        if {$::opt(io_threads)} {dict set settings io-threads $::opt(io_threads)}
        if {$::opt(slots)} {dict set settings keyspace-per-slot yes}
        foreach {k v} [dict get $o overrides] {dict set settings $k $v}
        set text ""
        dict for {k v} $settings {
            if {$v eq "-"} continue
            append text "$k [conf_value $k $v]\n"
        }
        foreach l [dict get $o config] {append text $l "\n"}
        set conf [file join $dir server.conf]
        write_file $conf $text
        set ::server($id,conf) $conf
        set ::server($id,dir) $dir
        set ::server($id,host) 127.0.0.1
        set ::server($id,port) [dict get $settings port]
        set ::server($id,client_port) $::server($id,port)
        set ::server($id,log) [file join $dir log]
        set ::server($id,err) [file join $dir err]
        set ::server($id,auth) [dict get $o auth]
        set ::server($id,options) $o
        set ::server($id,expect_exit) 0
        set ::server($id,rdma) $rdma
        set ::server($id,tls) $tls
        server_launch $id
        if {![dict get $o wait]} {return $id}
        if {[server_wait_up $id]} break
        # Another process took the port before the server did: choose another port.
        set log [server_text $id]
        server_stop $id
        if {$try < 3 && [regexp {Address already in use|Failed listening on port} $log]} continue
        error "the server did not start: [string trim [string range $log end-2000 end]]"
    }
    return $id
}

# Starts or restarts the process of a server whose directory and configuration file exist.
proc server_launch {id} {
    set o $::server($id,options)
    set cmd [list {*}[server_command] $::server($id,conf) {*}[dict get $o args]]
    if {[dict get $o env] ne ""} {set cmd [list env {*}[dict get $o env] {*}$cmd]}
    set ::server($id,log_start) [expr {[file exists $::server($id,log)] ? [file size $::server($id,log)] : 0}]
    set here [pwd]
    cd $::server($id,dir)
    set failed [catch {open_process $cmd /dev/null $::server($id,log) $::server($id,err) >>} chan]
    cd $here
    if {$failed} {error "could not start the server: $chan"}
    set ::server($id,chan) $chan
    set ::server($id,pid) [lindex [pid $chan] end]
    set ::server($id,err_seen) 0
    set ::server($id,stopped) 0
}

# 1 when the server replies; 0 if it ended before.
proc server_wait_up {id} {
    set end [resp::deadline [expr {$::opt(valgrind) ? 60000 : 15000}]]
    set pause 2
    while {1} {
        if {![process_alive $::server($id,pid)]} {return 0}
        set c ""
        set up 0
        if {![catch {
            set c [new_client -host $::server($id,host) -port $::server($id,port) -timeout 2000]
            catch {$c ping} reply
            if {[string match {PONG*} $reply] || [string match {NOAUTH*} $reply]} {set up 1}
            if {$up && ![catch {
                if {$::server($id,auth) ne ""} {$c auth $::server($id,auth)}
                $c info server
            } info]} {
                # Checks that it is not the server of another test, which took the port first.
                if {[regexp {config_file:([^\r\n]+)} $info -> file] && $file ne $::server($id,conf)} {
                    set up 0
                } elseif {[regexp {process_id:(\d+)} $info -> pid]} {
                    set ::server($id,pid) $pid
                }
            }
        }]} {}
        if {$c ne ""} {catch {$c -close}}
        if {$up} break
        if {[clock milliseconds] > $end} {return 0}
        after $pause
        if {$pause < 40} {incr pause $pause}
    }
    if {$::server($id,rdma) || $::server($id,tls)} {proxy_start $id}
    return 1
}

proc test_module {name} {return [file join $::root build modules $name.so]}

# Skips a suite that needs TLS and these tools, and returns 1, if the server or a tool lacks.
proc skip_without_tls {name args} {
    if {![catch {exec ldd $::opt(server)} libraries] && [string match *libssl* $libraries] &&
        "" ni [lmap t [list openssl {*}$args] {tool $t}]} {return 0}
    test $name {skip_test "built without TLS, or openssl(1) is not installed"}
    return 1
}
# The directory of the certificates of this suite; tests/harness/make-certificates lists them.
proc certificates {} {
    set dir [file join $::unit_dir certificates]
    if {![file isdirectory $dir]} {
        file mkdir $dir
        exec [file join $::root tests harness make-certificates] $dir
    }
    return $dir
}
proc crt {name} {file join [certificates] $name}

# The options with which a tool connects to a server that start_server has given TLS; none without --tls.
proc tls_tool_options {} {
    if {!$::opt(tls)} {return {}}
    set c [certificates]
    return [list --tls --cacert $c/ca.crt --cert $c/client.crt --key $c/client.key]
}

# One proxy for each server: Tcl has neither RDMA nor TLS, so clients connect to the proxy over TCP, and it opens an
# RDMA or TLS connection, or one of TLS over RDMA, for each of them.
proc proxy_start {id} {
    proxy_stop $id ;# that of a server which has ended by itself
    set kind [expr {$::server($id,tls) ? "tls" : "rdma"}]
    set helper [tool $kind-proxy]
    if {$helper eq ""} {error "build/programs/$kind-proxy is not built: run make"}
    if {$kind eq "rdma"} {
        set command [list {*}$::opt(launcher) $helper --listen-port 0 --rdma-host $::opt(rdma_host) \
            --rdma-port $::server($id,port)]
    } else {
        set c [certificates]
        set to [list --host $::server($id,host) --port $::server($id,tls_port)]
        if {$::server($id,rdma)} {
            set to [list --host $::opt(rdma_host) --port $::server($id,port) --transport rdma-tls]
        }
        set command [list {*}$::opt(launcher) $helper --listen-port 0 {*}$to --cacert $c/ca.crt --cert $c/client.crt \
            --key $c/client.key]
    }
    set here [pwd]
    cd $::server($id,dir)
    set chan [open [concat [list |] $command [list 2>> $::server($id,dir)/proxy.err]] r+]
    cd $here
    fconfigure $chan -buffering line -blocking 0
    set end [resp::deadline 10000]
    while {[gets $chan line] < 0} {
        if {[eof $chan]} {
            catch {close $chan}
            error "the proxy ended at once: [file_bytes $::server($id,dir)/proxy.err]"
        }
        resp::wait_channel $chan readable $end "the proxy was not ready"
    }
    if {![regexp {^ready (\d+)$} $line -> port]} {error "the proxy said: $line"}
    set ::server($id,proxy) $chan
    set ::server($id,client_port) $port
}
proc proxy_stop {id} {
    if {![info exists ::server($id,proxy)]} return
    set chan $::server($id,proxy)
    unset ::server($id,proxy)
    set pid [lindex [pid $chan] end]
    catch {close $chan write}
    for {set i 0} {$i < 100 && [process_alive $pid]} {incr i} {after 10}
    if {[process_alive $pid]} {kill_process KILL $pid}
    catch {close $chan}
}

# All output of the server: log and standard error.
proc server_text {id} {
    set out ""
    foreach f {log err} {
        if {[file exists $::server($id,$f)]} {append out [file_bytes $::server($id,$f)]}
    }
    return $out
}

# Waits for the end of the process and returns its exit status: a number or the name of a signal.
proc server_reap {id {ms 15000}} {
    set end [expr {[clock milliseconds] + $ms * $::test_patience}]
    set pid [lindex [pid $::server($id,chan)] end]
    while {[process_alive $pid]} {
        if {[clock milliseconds] > $end} {return timeout}
        after 5
    }
    set ::server($id,stopped) 1
    set code 0
    if {[catch {close $::server($id,chan)} e opts]} {
        set ec [dict get $opts -errorcode]
        if {[lindex $ec 0] in {CHILDSTATUS CHILDKILLED}} {set code [lindex $ec 2]}
    }
    return $code
}

# Stops the server with SIGTERM and reports anything but a clean exit.
proc server_stop {id} {
    reconnect_of $id
    proxy_stop $id
    set problem ""
    if {!$::server($id,stopped)} {
        set alive [process_alive $::server($id,pid)]
        if {$alive} {kill_process CONT $::server($id,pid)}
        # A server does not exit while it writes its first append-only file, so the signal is sent again.
        set end [expr {[clock milliseconds] + ($::opt(valgrind) ? 60000 : 15000) * $::test_patience}]
        set code timeout
        while {$code eq "timeout" && [clock milliseconds] < $end} {
            if {$alive} {kill_process TERM $::server($id,pid)}
            set code [server_reap $id 2000]
        }
        if {$code eq "timeout"} {
            kill_process KILL $::server($id,pid)
            server_reap $id
            set problem "did not end within 15 s of SIGTERM"
        } elseif {!$alive && !$::server($id,expect_exit)} {
            set problem "had ended by itself ($code)"
        } elseif {$code ne "0" && !$::server($id,expect_exit)} {
            set problem "ended with $code on SIGTERM"
        }
    }
    return $problem
}
proc reconnect_of {id} {
    if {[info exists ::server($id,client)]} {
        catch {$::server($id,client) -close}
        unset -nocomplain ::server($id,client)
    }
}

# Reports of sanitizers, valgrind and the crash handler since the last call.
proc server_reports {id} {
    set found {}
    foreach f {err log} {
        if {![file exists $::server($id,$f)]} continue
        set key $id,${f}_scanned
        if {![info exists ::server($key)]} {set ::server($key) 0}
        set size [file size $::server($id,$f)]
        if {$size <= $::server($key)} continue
        set ch [open $::server($id,$f) rb]
        seek $ch $::server($key)
        set text [read $ch]
        close $ch
        set ::server($key) $size
        foreach pattern {
            {ERROR: \w+Sanitizer[^\n]*} {WARNING: ThreadSanitizer[^\n]*} {[^\n]*runtime error:[^\n]*}
            {definitely lost: [1-9][^\n]*} {Invalid (?:read|write) of size[^\n]*} {[^\n]*uninitialised value[^\n]*}
            {[^\n]*=== [^\n]*BUG REPORT START[^\n]*} {[^\n]*ASSERTION FAILED[^\n]*}\
                {[^\n]*Assertion `[^\n]*failed[^\n]*}
        } {
            if {[regexp -- $pattern $text m]} {lappend found [string trim $m]}
        }
    }
    return $found
}

proc server_died {id} {
    expr {!$::server($id,stopped) && !$::server($id,expect_exit) && ![process_alive $::server($id,pid)]}
}

# True: all tests of this block need the software device, which is not available. They are skipped without a server.
proc all_skipped {body} {
    if {!$::opt(rdma) || [software_device]} {return 0}
    set tests [regexp -all -inline -line {^\s*test\s.*$} $body]
    expr {[llength $tests] && [lsearch -not $tests {*-needs $::on_software_device*}] < 0}
}

# start_server options body
proc start_server {options body} {
    if {[block_left_out $options $body]} return
    if {[all_skipped $body]} {
        uplevel 1 $body
        return
    }
    set saved_tags $::tags
    if {[dict exists $options tags]} {lappend ::tags {*}[dict get $options tags]}
    set id [server_start $options]
    lappend ::servers $id
    set code [catch {uplevel 1 $body} result opts]
    set ::servers [lrange $::servers 0 end-1]
    set ::tags $saved_tags
    foreach c $::test_clients {catch {$c -close}}
    set problem [server_stop $id]
    foreach report [server_reports $id] {append problem "; $report"}
    if {$problem ne "" && !($code == 1 && [dict get $opts -errorcode] eq "SERVER_DIED")} {
        unit_problem "a server of this suite: [string trim $problem {; }]\n[log_tail $id 30]"
    }
    if {$code == 1 && [dict get $opts -errorcode] eq "SERVER_DIED"} {
        if {[llength $::servers]} {return -options $opts $result}
        return
    }
    if {$code} {return -options $opts $result}
}

# Stops the current server and starts it again on the same directory and file.
# restart_server ?-signal TERM? ?-overrides {k v}?
proc restart_server {args} {
    set o [dict merge {-signal TERM -overrides {} -args {}} $args]
    set id [srv id]
    reconnect_of $id
    proxy_stop $id
    set pid $::server($id,pid)
    kill_process [dict get $o -signal] $pid
    if {[server_reap $id] eq "timeout"} {
        kill_process KILL $pid
        server_reap $id
        error "the server did not end within 15 s of SIG[dict get $o -signal]"
    }
    if {[dict get $o -overrides] ne ""} {
        set f [open $::server($id,conf) a]
        foreach {k v} [dict get $o -overrides] {puts $f "$k [conf_value $k $v]"}
        close $f
    }
    server_launch $id
    if {![server_wait_up $id]} {error "the server did not come back: [string range [server_text $id] end-2000 end]"}
}

# Starts the current server again, which has ended by itself.
proc server_start_again {} {
    server_launch [srv id]
    assert {[server_wait_up [srv id]]}
    reconnect
}
# Runs a script that loads the data again, or writes them: they must stay the same.
proc keeps_data {script} {
    set digest [r debug digest]
    uplevel 1 $script
    assert_equal $digest [r debug digest]
}

# Declares that the test will end the current server.
proc expect_server_exit {} {set ::server([srv id],expect_exit) 1}

# --- Log and INFO ----------------------------------------------------------

# Sends `bytes` to a TLS port without TLS. Returns whether the server closes the connection.
proc plain_peer_closed {port bytes} {
    set fd [socket 127.0.0.1 $port]
    fconfigure $fd -translation binary -blocking 0 -buffering none
    puts -nonewline $fd $bytes
    set end [resp::deadline 10000]
    while {1} {
        if {[catch {read $fd}]} break
        if {[eof $fd]} break
        if {[clock milliseconds] > $end} {close $fd; return 0}
        after 5
    }
    close $fd
    return 1
}

# Waits until a key that was set with this time to live has expired by the server's clock: after the last millisecond.
proc let_pass {ms} {
    set until [expr {[info_field server server_time_usec] + 1000 * ($ms + 1)}]
    wait_for_condition 10000 {[info_field server server_time_usec] > $until}
}

proc log_size {{level 0}} {
    set f [srv $level log]
    expr {[file exists $f] ? [file size $f] : 0}
}
proc log_text {{from 0} {level 0}} {
    set f [srv $level log]
    if {![file exists $f]} {return ""}
    set ch [open $f rb]
    seek $ch $from
    set t [read $ch]
    close $ch
    return $t
}
proc log_has {pattern {from 0} {level 0}} {string match "*$pattern*" [log_text $from $level]}
# Waits until the log contains the pattern, from that position on.
proc wait_for_log {pattern {from 0} {ms 5000} {level 0}} {
    set end [resp::deadline $ms]
    while {![log_has $pattern $from $level]} {
        if {[clock milliseconds] > $end} {
            fail_assertion "the log does not say '$pattern' within $ms ms; it says: [printable\
                [log_text $from $level] 800]"
        }
        after 10
    }
}
proc log_tail {id lines} {
    set t {}
    foreach f {log err proxy.err} {
        set p [expr {$f eq "proxy.err" ? "$::server($id,dir)/proxy.err" : $::server($id,$f)}]
        if {[file exists $p] && [file size $p] > 0} {
            lappend t "--- $f:" {*}[lrange [split [string trimright [file_bytes $p] \n] \n] end-[expr {$lines - 1}] end]
        }
    }
    return [join $t \n]
}

# info_field section field, info_field field: the value, or the empty string.
proc info_field {args} {
    set field [lindex $args end]
    set text [expr {[llength $args] > 1 ? [r info [lindex $args 0]] : [r info everything]}]
    if {[regexp -line "^$field:(\[^\r\n\]*)" $text -> v]} {return $v}
    return ""
}
# A field of INFO of the server at this level; "" if it has none, or cannot answer.
proc field {level name {section replication}} {
    if {[catch {r $level info $section} text]} {return ""}
    expr {[regexp "\n$name:(\[^\r\n\]*)" $text -> value] ? $value : ""}
}
proc info_has {args} {
    set field [lindex $args end]
    set text [expr {[llength $args] > 1 ? [r info [lindex $args 0]] : [r info everything]}]
    regexp -line "^$field:" $text
}
# All fields of a text in the format of INFO, as a dictionary.
proc info_dict {text} {
    set d [dict create]
    foreach l [split $text \n] {
        set l [string trimright $l \r]
        if {$l eq "" || [string index $l 0] eq "#"} continue
        set at [string first : $l]
        if {$at > 0} {dict set d [string range $l 0 $at-1] [string range $l $at+1 end]}
    }
    return $d
}
# The fields of one line of CLIENT LIST as a dictionary.
proc client_fields {line} {
    set d [dict create]
    foreach w [split [string trim $line] " "] {
        set at [string first = $w]
        dict set d [string range $w 0 $at-1] [string range $w $at+1 end]
    }
    return $d
}
proc config_get {name} {
    lindex [r config get $name] 1
}
# Runs the script with changed options, and restores them even after an error.
proc with_config {settings script} {
    set old {}
    foreach {k v} $settings {lappend old $k [config_get $k]}
    r config set {*}$settings
    set code [catch {uplevel 1 $script} result opts]
    catch {r config set {*}$old}
    return -options $opts $result
}
proc with_debug_active_expire_off {script} {
    r debug set-active-expire 0
    set code [catch {uplevel 1 $script} result opts]
    catch {r debug set-active-expire 1}
    return -options $opts $result
}

# --- Properties of the server under test --------------------------------------

# True: our server; false: a genuine one (any binary outside this tree).
proc server_is_ours {} {return $::opt(ours)}

# True: the server has the features of that Valkey version. Our server has all.
proc server_at_least {version} {
    if {$::opt(ours)} {return 1}
    if {![info exists ::genuine_version]} {
        set ::genuine_version 0
        catch {regexp {v=([0-9.]+)} [exec {*}$::opt(launcher) $::opt(server) --version] -> ::genuine_version}
    }
    expr {[package vcompare $::genuine_version $version] >= 0}
}

# Checks the needs of a test, pairs of kind and value. Returns the reason why the test cannot run, or the empty string.
proc unmet_need {needs} {
    foreach {kind value} $needs {
        switch -exact -- $kind {
            version {if {![server_at_least $value]} {return "the server is older than $value"}}
            command {
                if {![info exists ::known_command($value)]} {
                    set known [r -typed command info {*}$value]
                    set ::known_command($value) \
                        [expr {[string index $known 0] eq "*" && [string index [lindex $known 1] 0] eq "*"}]
                }
                if {!$::known_command($value)} {return "the server has no command $value"}
            }
            config {if {[r config get $value] eq ""} {return "the server has no option $value"}}
            tool {if {[tool $value] eq ""} {return "no $value is installed"}}
            ours {if {[server_is_ours] != $value}\
                {return [expr {$value ? "only for our server" : "only for a genuine server"}]}}
            file {if {![file exists $value]} {return "no $value"}}
            clear {if {$::opt(tls)} {return $value}}
            device {if {![software_device]} {return "only on the software device"}}
            true {if {![uplevel 2 [list expr $value]]} {return "not the case: $value"}}
            default {error "unknown need $kind"}
        }
    }
    return ""
}

# --- Servers started by hand, for tests of starting itself -------------------

# serve ?-wait 0? ?-dir DIR? ?-stdin TEXT? ?-host H? ?-port P? -- ARGUMENTS... Runs the server with exactly these
# arguments in a new directory; returns {handle port dir}. It listens on a free port ("PORT" in the arguments is
# replaced by it) and is stopped at the end of the test.
proc serve {args} {
    set at [lsearch -exact $args --]
    set o [dict merge {-wait 1 -dir {} -stdin {} -host 127.0.0.1 -port {}} [lrange $args 0 $at-1]]
    set port [dict get $o -port]
    if {$port eq ""} {set port [free_port]}
    set dir [dict get $o -dir]
    if {$dir eq ""} {set dir [file join $::unit_dir d[incr ::server_next]]}
    file mkdir $dir
    set argv [lmap a [lrange $args $at+1 end] {string map [list PORT $port DIR $dir] $a}]
    set how [list -in $dir]
    if {[dict get $o -stdin] ne ""} {lappend how -stdin [string map [list PORT $port DIR $dir] [dict get $o -stdin]]}
    set handle [spawn {*}$how {*}[server_command] {*}$argv]
    if {[dict get $o -wait]} {
        set end [resp::deadline 10000]
        while {1} {
            if {![process_alive [spawn_pid $handle]]} {
                error "the server ended at once: [spawn_out $handle][spawn_err $handle]"
            }
            if {![catch {set c [new_client -host [dict get $o -host] -port $port -timeout 1000]; catch {$c ping} e; $c\
                -close}]} break
            if {[clock milliseconds] > $end} {
                error "the server does not listen: [spawn_out $handle][spawn_err $handle]"
            }
            after 10
        }
    }
    return [list $handle $port $dir]
}
# Waits until a file contains the pattern.
proc wait_for_text {file pattern {ms 5000}} {
    set end [resp::deadline $ms]
    while {1} {
        set text [expr {[file exists $file] ? [file_bytes $file] : ""}]
        if {[string match "*$pattern*" $text]} return
        if {[clock milliseconds] > $end} {
            fail_assertion "$file does not say '$pattern' within $ms ms; it says: [printable $text 800]"
        }
        after 10
    }
}
proc spawn_outfile {id} {dict get $::spawned($id) out}
# Runs the server with these arguments until it exits: {code N out TEXT err TEXT}.
proc run_server {args} {run -timeout 20 {*}[server_command] {*}$args}
# The server does not start: exit code 1 and this text on standard error.
proc refuses_to_start {text args} {
    set got [run_server {*}$args]
    if {[dict get $got code] ne 1} {fail_assertion "expected exit code 1, got [dict get $got code]"}
    if {![string match "*$text*" [dict get $got err]]} {
        fail_assertion "expected on standard error something like [shown $text], got [shown [dict get $got err]]"
    }
}
